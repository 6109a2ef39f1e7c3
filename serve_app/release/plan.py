"""The plan of a release: its steps, and what rolls the candidate back."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError, model_validator

from pipeline.contract.setting_mistakes import describe_mistake
from pipeline.contract.settings import Settings, read_exponent_number, read_yaml_mapping

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0, le=90 * 86_400.0)]
Count = Annotated[int, Field(ge=1)]
_DAY_S = 86_400.0
FAIREST_WEIGHT = 0.5
"""Up to this weight the stable version is under at least the candidate's load."""


class Step(Settings):
    """A share of the keys, and how long it is watched before the next step."""

    weight: Annotated[float, Field(gt=0.0, le=1.0)]
    """Share of the keys that the candidate answers."""
    dwell_s: Seconds = _DAY_S
    """Seconds that the candidate is watched at this weight at least."""


class Thresholds(Settings):
    """What the candidate may be worse by. Beyond it fails, within it passes, if shown."""

    max_error_rise: Share = 0.005
    """Share of requests that fail, the candidate's less the stable one's."""
    max_p99_ratio: Annotated[float, Field(gt=1.0, le=100.0)] = 1.1
    """P99 of a lane's times, the candidate's by the stable one's."""
    max_typical_ratio: Annotated[float, Field(gt=1.0, le=100.0)] = 1.1
    """Of a candidate's and a stable time of one second, the first by the second, in the median."""
    max_flip_rate: Share = 0.005
    """Share of the texts that the two versions label differently. A model that was trained anew
    is meant to differ: say here by how much."""
    shift_tolerance: Share | None = None
    """Change of a probability that counts as a shift; null: the larger of the two bundles' stored
    tolerances (``batch_shift``)."""
    max_shift_rate: Share | None = None
    """Share of the texts whose probabilities shift by more than the tolerance; null: measured,
    and decides nothing, as every model that was trained anew shifts them all."""
    max_accuracy_drop: Share = 0.02
    """Share of the labels that users call right, the stable version's less the candidate's."""


class MinSamples(Settings):
    """What a check needs before it says anything."""

    requests: Count = 200
    """Requests to the candidate."""
    times: Count = 300
    """Answers of the candidate in one lane."""
    comparisons: Count = 200
    """Texts that both versions answered."""
    feedback: Count = 50
    """Labels that users gave for answers of the candidate."""


class Confidence(Settings):
    """How sure the checks must be, however often they look."""

    false_rollback: Annotated[float, Field(gt=0.0, le=0.2)] = 0.01
    """Chance that a release whose candidate is within every threshold is ever rolled back by a
    check: all checks, steps and looks together."""
    false_pass: Annotated[float, Field(gt=0.0, le=0.5)] = 0.05
    """Chance that one check in one step ever passes a candidate that is beyond its threshold."""


class Shadow(Settings):
    """Requests that the other version answers as well, off the user's path."""

    share: Share = 0.05
    """Of the requests."""
    texts_per_s: Annotated[float, Field(ge=0.0, le=1e6)] = 10.0
    """What one ingress may spend on them."""
    keeps_texts: bool = False
    """Keep the texts of sample disagreements; texts are private, so off."""
    kept_disagreements: Annotated[int, Field(ge=0, le=1000)] = 50
    """Disagreements that are kept for people, as a uniform sample."""


class HardLimits(Settings):
    """What rolls the candidate back at once, without any statistics."""

    burst_errors: Count = 20
    """Requests that the candidate failed within ``burst_window_s``…"""
    burst_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """…if they are this share of its requests, and twice the stable version's share."""
    burst_window_s: Annotated[float, Field(ge=1.0, le=600.0)] = 10.0
    """Seconds that are looked back."""
    unreachable_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 20.0
    """Seconds of the last ``crash_window_s`` in which calls found no replica of the candidate."""
    restarts: Count = 3
    """Replicas of the candidate that died within ``crash_window_s``."""
    crash_window_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 60.0
    """Seconds that are looked back."""


class ReleasePlan(Settings):
    """How a candidate earns its traffic."""

    hint: ClassVar[str] = "serve_app/release/CHECKS.md explains every setting of a plan."

    steps: Annotated[tuple[Step, ...], Field(strict=False, min_length=1, max_length=20)] = (
        Step(weight=0.05),
        Step(weight=0.25),
        Step(weight=0.5),
        Step(weight=1.0),
    )
    """Weights, rising; after the last one the candidate is promoted."""
    settle_s: Annotated[float, Field(ge=0.0, le=3600.0)] = 30.0
    """Seconds at the beginning of each step that no check but the hard limits counts."""
    report_timeout_s: Annotated[float, Field(ge=2.0, le=600.0)] = 10.0
    """Seconds without any report of an ingress after which every check is inconclusive."""
    min_lane_share: Share = 0.01
    """A lane with less of the stable version's requests need not pass its checks of time."""
    thresholds: Thresholds = Thresholds()
    min_samples: MinSamples = MinSamples()
    confidence: Confidence = Confidence()
    shadow: Shadow = Shadow()
    hard_limits: HardLimits = HardLimits()

    @model_validator(mode="after")
    def _refuse_impossible_steps(self) -> "ReleasePlan":
        weights = [step.weight for step in self.steps]
        for lower, higher in itertools.pairwise(weights):
            if lower >= higher:
                raise ValueError(f"steps: weight {higher:g} must be over {lower:g} before it.")
        if weights[0] > FAIREST_WEIGHT:
            raise ValueError(
                f"steps: the first weight {weights[0]:g} is over {FAIREST_WEIGHT:g}, which leaves "
                "no stable traffic to compare with. Begin with less, such as 0.05."
            )
        limits = self.hard_limits
        if limits.unreachable_s > limits.crash_window_s:
            raise ValueError(
                f"hard_limits.unreachable_s {limits.unreachable_s:g} is over crash_window_s "
                f"{limits.crash_window_s:g}. Lower the first or raise the second."
            )
        return self


def load_plan(file: Path) -> ReleasePlan:
    """Return the plan of a YAML file.

    Raises:
        ConfigError: the file cannot be read, or a setting is unknown, of the wrong type or
            impossible.
    """
    return plan_from_mapping(read_yaml_mapping(file, hint=ReleasePlan.hint), source=str(file))


def plan_from_mapping(values: Mapping[str, Any], *, source: str) -> ReleasePlan:
    """Return the plan that a mapping holds; what it does not name has its default.

    Args:
        values: as of YAML or JSON.
        source: what errors call it.

    Raises:
        ConfigError: a setting is unknown, of the wrong type or impossible.
    """
    try:
        return ReleasePlan.model_validate(_with_numbers(values))
    except ValidationError as error:
        # A misspelt name explains why another one is missing.
        mistakes = error.errors(include_url=False)
        unknown = (one for one in mistakes if one["type"] == "extra_forbidden")
        mistake = next(unknown, mistakes[0])
        raise describe_mistake(ReleasePlan, mistake, origin=source, hint=ReleasePlan.hint) from None


def plan_to_mapping(plan: ReleasePlan) -> dict[str, Any]:
    """Return what :func:`plan_from_mapping` reads and JSON can hold."""
    values: dict[str, Any] = json.loads(plan.model_dump_json())
    return values


def _with_numbers(value: Any) -> Any:
    # YAML 1.1 reads 1e-3 as text.
    if isinstance(value, Mapping):
        return {str(key): _with_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_numbers(item) for item in value]
    return read_exponent_number(value)
