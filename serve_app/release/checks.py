"""Every check of a step: what it looks at, its test, and what it says."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from serve_app.release.always_valid import EVEN, HALF, RARE
from serve_app.release.check_result import CheckResult, Verdict
from serve_app.release.effects import (
    Effect,
    Levels,
    Sample,
    quantile_ratio_effect,
    rise_effect,
    share_effect,
)
from serve_app.release.evidence import Evidence
from serve_app.release.plan import FAIREST_WEIGHT, ReleasePlan
from serve_app.release.tallies import ComparisonTally, FeedbackTally, LaneTally, PairTally
from serve_app.release.verdicts import Question, Window, judge

LANES = ("short", "long")
FAULT_HOLD_S = 60.0
"""How long a fault of the source silences the checks."""
P99 = 0.99
_RISE = "difference of two shares, Beta-mixture confidence sequences"
_SHARE = "share, Beta-mixture confidence sequence"
_QUANTILE = "ratio of two quantiles, confidence sequences of ranks"
_SIGN = "sign test of pairs of one second, Beta-mixture confidence sequence"


def run_checks(plan: ReleasePlan, evidence: Evidence, *, now: float) -> tuple[CheckResult, ...]:
    """Return what every check of the step says now.

    Args:
        plan: with the thresholds.
        evidence: of the step.
        now: seconds since 1970.
    """
    levels = check_levels(plan)
    asked = (
        _ask_errors(plan, evidence, levels),
        *_ask_comparisons(plan, evidence, levels),
        _ask_accuracy(plan, evidence, levels),
        *_ask_times(plan, evidence, levels),
    )
    window = Window(start=evidence.window_start, end=evidence.window_end)
    results = tuple(
        judge(question, effect, alpha=levels.fail, window=window) for question, effect in asked
    )
    silence = find_silence(plan, evidence, now=now)
    if silence is None:
        return results
    held = Verdict.INCONCLUSIVE
    return tuple(replace(result, verdict=held, reason=silence) for result in results)


def check_levels(plan: ReleasePlan) -> Levels:
    """Return each check's share of the plan's chances: divided evenly (Bonferroni)."""
    num_checks = 4 + 2 * len(LANES) + (plan.thresholds.max_shift_rate is not None)
    confidence = plan.confidence
    return Levels(
        fail=confidence.false_rollback / (num_checks * len(plan.steps)),
        passing=confidence.false_pass,
    )


def find_silence(plan: ReleasePlan, evidence: Evidence, *, now: float) -> str | None:
    """Return why the source of the figures cannot be trusted now; None: it can."""
    heard = evidence.last_heard_at
    if heard is None:
        return "no ingress has reported yet"
    if now - heard > plan.report_timeout_s:
        return f"no ingress has reported for {now - heard:.0f} s"
    if evidence.fault_at is not None and now - evidence.fault_at < FAULT_HOLD_S:
        return f"a fault in the figures {now - evidence.fault_at:.0f} s ago: {evidence.fault}"
    return None


_Asked = tuple[Question, Effect]


def _ask_errors(plan: ReleasePlan, evidence: Evidence, levels: Levels) -> _Asked:
    candidate = _errors(evidence.lanes.get("candidate", {}))
    lanes, baseline = evidence.stable_lanes()
    stable = _errors(lanes)
    question = _rise_question(
        "errors",
        (candidate, stable),
        measure=f"rise of the share of failed requests against stable in {baseline}",
        threshold=plan.thresholds.max_error_rise,
        least=plan.min_samples.requests,
    )
    return question, rise_effect(candidate, stable, levels=levels, mixture=RARE)


def _ask_comparisons(plan: ReleasePlan, evidence: Evidence, levels: Levels) -> Iterator[_Asked]:
    tally = evidence.comparisons.get("all", {}).get("all", ComparisonTally())
    thresholds, least = plan.thresholds, plan.min_samples.comparisons
    is_shadowing = plan.shadow.share > 0.0 and plan.shadow.texts_per_s > 0.0
    failures = Sample(hits=tally.num_failures, trials=tally.num_comparisons)
    stable = _errors(evidence.stable_lanes()[0])
    question = _rise_question(
        "shadow_errors",
        (failures, stable),
        measure="share of shadowed texts that the candidate failed, less stable's failed requests",
        threshold=thresholds.max_error_rise,
        least=least,
    )
    effect = rise_effect(failures, stable, levels=levels, mixture=RARE)
    yield replace(question, is_required=is_shadowing), effect
    rates = {"flips": (tally.num_flips, thresholds.max_flip_rate)}
    if thresholds.max_shift_rate is not None:
        rates["shifts"] = (tally.num_shifts, thresholds.max_shift_rate)
    for name, (hits, threshold) in rates.items():
        sample = Sample(hits=hits, trials=tally.num_answered)
        question = Question(
            name=name,
            test=_SHARE,
            measure=_MEASURES[name],
            threshold=threshold,
            num_candidate=sample.trials,
            num_stable=sample.trials,
            least=least,
            is_required=is_shadowing,
            candidate=sample.share,
        )
        yield question, share_effect(sample, levels=levels, mixture=RARE)


_MEASURES = {
    "flips": "share of compared texts with another label, beyond the tolerance",
    "shifts": "share of compared texts whose probability shifts beyond the tolerance",
}


def _ask_accuracy(plan: ReleasePlan, evidence: Evidence, levels: Levels) -> _Asked:
    candidate, stable = (
        Sample(hits=tally.num_wrong, trials=tally.num_labels)
        for tally in (
            evidence.feedback.get("candidate", FeedbackTally()),
            evidence.feedback.get("stable", FeedbackTally()),
        )
    )
    question = _rise_question(
        "accuracy",
        (candidate, stable),
        measure="rise of the share of answers that users call wrong",
        threshold=plan.thresholds.max_accuracy_drop,
        least=plan.min_samples.feedback,
    )
    # Few services have feedback: without it the other checks decide.
    effect = rise_effect(candidate, stable, levels=levels, mixture=EVEN)
    return replace(question, is_required=False), effect


def _ask_times(plan: ReleasePlan, evidence: Evidence, levels: Levels) -> Iterator[_Asked]:
    lanes, baseline = evidence.stable_lanes()
    total = sum(tally.num_requests for tally in lanes.values())
    for lane in LANES:
        stable = lanes.get(lane, LaneTally())
        candidate = evidence.lanes.get("candidate", {}).get(lane, LaneTally())
        is_required = total == 0 or stable.num_requests >= plan.min_lane_share * total
        ratio = quantile_ratio_effect(candidate.times, stable.times, share=P99, levels=levels)
        question = Question(
            name=f"p99.{lane}",
            test=_QUANTILE,
            measure=f"P99 of the lane by stable's in {baseline}",
            threshold=plan.thresholds.max_p99_ratio,
            num_candidate=candidate.times.num_samples,
            num_stable=stable.times.num_samples,
            least=plan.min_samples.times,
            is_required=is_required,
            candidate=candidate.times.quantile(P99),
            stable=stable.times.quantile(P99),
        )
        yield question, ratio
        if evidence.weight <= FAIREST_WEIGHT:
            question, effect = _ask_typical(plan, lane, evidence.pairs.get(lane), levels)
            yield replace(question, is_required=is_required), effect


def _ask_typical(plan: ReleasePlan, lane: str, tally: PairTally | None, levels: Levels) -> _Asked:
    pairs = tally or PairTally()
    sample = Sample(hits=pairs.num_slower, trials=pairs.num_pairs)
    ratio = plan.thresholds.max_typical_ratio
    question = Question(
        name=f"typical.{lane}",
        test=_SIGN,
        measure=f"share of pairs whose candidate's time is over {ratio:g} × the stable one's",
        threshold=0.5,
        num_candidate=sample.trials,
        num_stable=sample.trials,
        least=plan.min_samples.times,
        candidate=sample.share,
    )
    return question, share_effect(sample, levels=levels, mixture=HALF)


def _rise_question(
    name: str,
    samples: tuple[Sample, Sample],
    *,
    measure: str,
    threshold: float,
    least: int,
) -> Question:
    candidate, stable = samples
    return Question(
        name=name,
        test=_RISE,
        measure=measure,
        threshold=threshold,
        num_candidate=candidate.trials,
        num_stable=stable.trials,
        least=least,
        candidate=candidate.share,
        stable=stable.share,
    )


def _errors(lanes: Mapping[str, LaneTally]) -> Sample:
    tallies = list(lanes.values())
    return Sample(
        hits=sum(tally.num_errors for tally in tallies),
        trials=sum(tally.num_requests for tally in tallies),
    )
