"""How many replicas a lane should have, from queued work and busy sessions; pure numbers.

Ray Serve takes this file's code into its controller, so it imports nothing of ours.

Ray's own signal, calls under way, says nothing here: up to 64 texts share a call. And queued
work alone cannot tell when a replica is superfluous, as nothing waits whether sessions are 10 or
90 % busy. So queued work adds replicas, and the busy share says how many the work needs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

QUEUED_BATCHES, BUSY_SHARE = "queued_batches", "busy_share"
"""Names of what each replica reports, both averaged over the last seconds by Ray."""
_PENDING = "textlane_pending"


@dataclass(frozen=True, kw_only=True)
class ScalingRules:
    """When to change the number of replicas."""

    up_delay_s: float
    """Seconds that work must have been queued before replicas are added."""
    down_delay_s: float
    """Seconds that replicas must have been superfluous before they are taken away."""
    queued_target: float = 2.0
    """Full batches that may wait for one replica; chosen: a text then waits for two or three
    model runs. One that keeps up has less than one waiting."""
    busy_target: float = 0.7
    """Busy share of the replicas that remain; chosen: at the mean of their load, with room for
    its peaks, so that taking one away does not call for it again."""


@dataclass(frozen=True, kw_only=True)
class LaneLoad:
    """What the running replicas of a lane report, one number for each that has reported."""

    queued_batches: Sequence[float]
    busy_shares: Sequence[float]
    num_running: int
    """Replicas that run; more may be starting."""


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A change that is wanted and must last to be made."""

    is_up: bool
    since_s: float
    num_replicas: int
    """The least change that was wanted since."""


def wanted_replicas(load: LaneLoad, *, num_replicas: int, rules: ScalingRules) -> int:
    """Return how many replicas the load calls for, were it to stay.

    At most twice as many as now, because a queue does not tell how much more work comes than
    is done. Between both limits nothing changes.

    Args:
        load: of the replicas that run.
        num_replicas: those that run or start.
        rules: the limits.

    Example: 2 replicas with 6 batches queued, 2 may wait for each -> 3.
    """
    queued, busy = sum(load.queued_batches), sum(load.busy_shares)
    if queued > num_replicas * rules.queued_target:
        # What starts must first take its share of the work.
        if load.num_running < num_replicas:
            return num_replicas
        return min(2 * num_replicas, math.ceil(queued / rules.queued_target))
    if len(load.busy_shares) < load.num_running:
        return num_replicas  # One that has not reported yet is not known to be superfluous.
    needed = max(1, math.ceil(busy / rules.busy_target))
    has_calm_queue = queued <= 0.5 * rules.queued_target * needed
    return needed if needed < num_replicas and has_calm_queue else num_replicas


def decide(
    wanted: int, *, num_replicas: int, pending: Pending | None, now_s: float, rules: ScalingRules
) -> tuple[int, Pending | None]:
    """Return the number of replicas from now on, and the change that still has to last.

    A change is made when all of it was wanted for the whole delay of its direction.
    """
    if wanted == num_replicas:
        return num_replicas, None
    is_up = wanted > num_replicas
    if pending is None or pending.is_up != is_up:
        pending = Pending(is_up=is_up, since_s=now_s, num_replicas=wanted)
    least = min if is_up else max
    pending = Pending(
        is_up=is_up, since_s=pending.since_s, num_replicas=least(pending.num_replicas, wanted)
    )
    if now_s - pending.since_s < (rules.up_delay_s if is_up else rules.down_delay_s):
        return num_replicas, pending
    return pending.num_replicas, None


class LaneScaling:
    """The policy that Ray Serve asks several times a second."""

    def __init__(self, **rules: float) -> None:
        """Take the fields of ``ScalingRules``."""
        self._rules = ScalingRules(**rules)

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas and what to remember of it.

        Args:
            context: Ray Serve's ``AutoscalingContext``.
        """
        num_replicas = int(context.target_num_replicas)
        wanted = wanted_replicas(_load_of(context), num_replicas=num_replicas, rules=self._rules)
        least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        num_replicas, pending = decide(
            max(least, min(most, wanted)),
            num_replicas=num_replicas,
            pending=context.policy_state.get(_PENDING),
            now_s=context.current_time,
            rules=self._rules,
        )
        return num_replicas, {_PENDING: pending}


def _load_of(context: Any) -> LaneLoad:
    reported: Mapping[str, Mapping[Any, float]] = context.aggregated_metrics or {}
    return LaneLoad(
        queued_batches=list(reported.get(QUEUED_BATCHES, {}).values()),
        busy_shares=list(reported.get(BUSY_SHARE, {}).values()),
        num_running=int(context.current_num_replicas),
    )
