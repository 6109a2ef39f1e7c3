"""From an effect's interval to one of three verdicts, in words."""

from dataclasses import dataclass

from serve_app.release.check_result import CheckResult, Verdict
from serve_app.release.effects import Effect


@dataclass(frozen=True, kw_only=True)
class Question:
    """What one check asks, apart from its answer."""

    name: str
    test: str
    measure: str
    threshold: float
    num_candidate: int
    num_stable: int
    least: int
    """Samples of the candidate that are needed; of stable one."""
    is_required: bool = True
    candidate: float | None = None
    stable: float | None = None


@dataclass(frozen=True, kw_only=True)
class Window:
    """When the samples came, seconds since 1970."""

    start: float
    end: float


def judge(question: Question, effect: Effect, *, alpha: float, window: Window) -> CheckResult:
    """Return the verdict: fail beyond the threshold, pass within it, else inconclusive.

    Args:
        question: what is asked.
        effect: what was measured.
        alpha: of the effect's interval that can fail.
        window: when.
    """
    verdict, reason = _decide(question, effect)
    return CheckResult(
        name=question.name,
        verdict=verdict,
        is_required=question.is_required,
        reason=reason,
        test=question.test,
        measure=question.measure,
        threshold=question.threshold,
        estimate=effect.estimate,
        low=_finite(effect.low),
        high=_finite(effect.high),
        alpha=alpha,
        pass_high=_finite(effect.pass_high),
        candidate=question.candidate,
        stable=question.stable,
        num_candidate=question.num_candidate,
        num_stable=question.num_stable,
        window_start=window.start,
        window_end=window.end,
    )


def _decide(question: Question, effect: Effect) -> tuple[Verdict, str]:
    candidate, stable, least = question.num_candidate, question.num_stable, question.least
    if candidate < least:
        return Verdict.INCONCLUSIVE, f"{candidate} of {least} samples that are needed"
    if stable < 1 or effect.estimate is None:
        return Verdict.INCONCLUSIVE, "the stable version has no samples to compare with"
    figures = f"{question.measure} is {effect.estimate:.4g}"
    threshold = f"{question.threshold:.4g}"
    if effect.low > question.threshold:
        return Verdict.FAIL, f"{figures}, at least {effect.low:.4g}, over {threshold}"
    if effect.pass_high <= question.threshold:
        return Verdict.PASS, f"{figures}, at most {effect.pass_high:.4g}, within {threshold}"
    between = f"between {effect.low:.4g} and {effect.pass_high:.4g}"
    return Verdict.INCONCLUSIVE, f"{figures}, {between}; more samples tell whether over {threshold}"


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None
