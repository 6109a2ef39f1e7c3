"""What the desk shows beside its state: traffic, comparisons and drift of a release under way."""

from serve_app.release.drift import DriftFinding
from serve_app.release.evidence import ROLES, Evidence
from serve_app.release.plan import ReleasePlan
from serve_app.release.status import DriftView, ShadowView, TrafficView

_MEDIAN, _P99 = 0.5, 0.99


def show_traffic(evidence: Evidence) -> list[TrafficView]:
    """Return users' requests of the step by version and lane."""
    names = {"stable": evidence.stable, "candidate": evidence.candidate}
    return [
        TrafficView(
            version=names[role],
            lane=lane,
            num_requests=tally.num_requests,
            num_errors=tally.num_errors,
            p50_ms=tally.times.quantile(_MEDIAN),
            p99_ms=tally.times.quantile(_P99),
        )
        for role in ROLES
        for lane, tally in sorted(evidence.lanes.get(role, {}).items())
    ]


def show_shadow(plan: ReleasePlan, evidence: Evidence) -> ShadowView:
    """Return what was compared in the step."""
    compared = evidence.comparisons.get("all", {}).get("all")
    return ShadowView(
        share=plan.shadow.share,
        texts_per_s=plan.shadow.texts_per_s,
        num_compared=compared.num_comparisons if compared else 0,
        num_dropped=evidence.num_dropped,
        tolerance=evidence.shift_tolerance,
    )


def show_drift(findings: tuple[DriftFinding, ...]) -> list[DriftView]:
    """Return drift as people are shown it."""
    return [
        DriftView.model_validate(
            {
                "version": one.version,
                "feature": one.feature,
                "level": str(one.level),
                "psi": one.psi,
                "num_samples": one.num_samples,
                "note": one.note,
            }
        )
        for one in findings
    ]
