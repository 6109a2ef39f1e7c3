"""What rolls a candidate back within seconds, without any statistics."""

from serve_app.release.check_result import HardLimit
from serve_app.release.evidence import Evidence
from serve_app.release.plan import HardLimits

_TIMES_STABLE = 2.0
"""An outage of both versions is not the candidate's."""


def find_hard_limit(limits: HardLimits, evidence: Evidence, *, now: float) -> HardLimit | None:
    """Return the limit that the candidate has passed; None: it has passed none.

    Args:
        limits: of the plan.
        evidence: of the release.
        now: seconds since 1970.
    """
    return _error_burst(limits, evidence, now) or _crash_loop(limits, evidence, now)


def _error_burst(limits: HardLimits, evidence: Evidence, now: float) -> HardLimit | None:
    recent = [one for one in evidence.moments if one.at > now - limits.burst_window_s]
    errors = sum(one.candidate_errors for one in recent)
    requests = sum(one.candidate_requests for one in recent)
    if errors < limits.burst_errors or errors < limits.burst_share * requests:
        return None
    stable_requests = sum(one.stable_requests for one in recent)
    stable_share = sum(one.stable_errors for one in recent) / max(stable_requests, 1)
    if errors / requests < _TIMES_STABLE * stable_share:
        return None
    return HardLimit(
        name="error_burst",
        reason=f"the candidate failed {errors} of {requests} requests in "
        f"{limits.burst_window_s:g} s, stable {stable_share:.1%} of its own",
        value=errors,
        threshold=limits.burst_errors,
        window_s=limits.burst_window_s,
    )


def _crash_loop(limits: HardLimits, evidence: Evidence, now: float) -> HardLimit | None:
    since = now - limits.crash_window_s
    restarts = sum(1 for at in evidence.restarts if at > since)
    if restarts >= limits.restarts:
        return HardLimit(
            name="crash_loop",
            reason=f"{restarts} replicas of the candidate died in {limits.crash_window_s:g} s",
            value=restarts,
            threshold=limits.restarts,
            window_s=limits.crash_window_s,
        )
    seconds = {int(one.at) for one in evidence.moments if one.at > since and one.unreachable}
    if len(seconds) < limits.unreachable_s:
        return None
    return HardLimit(
        name="crash_loop",
        reason=f"calls found no replica of the candidate in {len(seconds)} of the last "
        f"{limits.crash_window_s:g} s",
        value=len(seconds),
        threshold=limits.unreachable_s,
        window_s=limits.crash_window_s,
    )
