import pytest
from release_reports import (
    CANDIDATE,
    STABLE,
    START,
    cell,
    comparison,
    feedback,
    fresh_evidence,
    quick_plan,
    report,
    running_state,
)

from serve_app.release.check_result import Verdict
from serve_app.release.checks import FAULT_HOLD_S, check_levels, run_checks
from serve_app.release.hard_limits import find_hard_limit
from serve_app.release.plan import ReleasePlan
from serve_app.release.state import take_step
from serve_app.release.tallies import LaneTally

A, B = STABLE.version, CANDIDATE.version
PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
PLAN = quick_plan()


@pytest.fixture
def evidence():
    return fresh_evidence(running_state())


def add(evidence, number=1, *, at=START + 1, **parts):
    assert evidence.add(report(number, **parts), at=at)


def check(evidence, name, *, plan=PLAN, now=START + 2):
    return next(one for one in run_checks(plan, evidence, now=now) if one.name == name)


def grow(evidence, role, lane, *, requests=0, errors=0):
    """Count requests as many reports would."""
    tally = evidence.lanes[role].setdefault(lane, LaneTally())
    tally.num_requests += requests
    tally.num_errors += errors


def test_without_traffic_every_check_is_inconclusive(evidence):
    add(evidence)
    results = run_checks(PLAN, evidence, now=START + 2)

    assert {result.verdict for result in results} == {INCONCLUSIVE}
    assert {result.name for result in results if not result.is_required} == {"accuracy"}
    assert [result.name for result in results] == [
        "errors",
        "shadow_errors",
        "flips",
        "accuracy",
        "p99.short",
        "typical.short",
        "p99.long",
        "typical.long",
    ]


@pytest.mark.parametrize(
    ("candidate", "stable", "verdict"),
    [
        ((0, 199), (0, 100_000), INCONCLUSIVE),
        ((199, 199), (0, 100_000), INCONCLUSIVE),
        ((0, 3_000), (0, 100_000), PASS),
        ((15, 3_000), (200, 100_000), INCONCLUSIVE),
        ((60, 3_000), (200, 100_000), FAIL),
        ((60, 3_000), (2_000, 100_000), INCONCLUSIVE),
        ((45, 3_000), (0, 0), INCONCLUSIVE),
    ],
)
def test_errors_are_judged_against_stable_and_with_enough_samples(
    evidence, candidate, stable, verdict
):
    add(evidence)
    for role, (errors, requests) in (("candidate", candidate), ("stable", stable)):
        grow(evidence, role, "short", requests=requests, errors=errors)

    result = check(evidence, "errors")

    assert result.verdict is verdict, result.reason
    assert (result.num_candidate, result.num_stable) == (candidate[1], stable[1])
    assert result.threshold == 0.005
    if verdict is FAIL:
        assert result.low > 0.005
        assert "over 0.005" in result.reason


def test_flips_pass_fail_and_wait(evidence):
    for sequence in range(20):
        add(evidence, sequence, comparisons=[comparison(index) for index in range(100)])
    assert check(evidence, "flips").verdict is PASS

    add(evidence, 98, comparisons=[comparison(index, flip=index < 10) for index in range(100)])
    assert check(evidence, "flips").verdict is INCONCLUSIVE
    add(evidence, 99, comparisons=[comparison(index, flip=index < 50) for index in range(100)])
    result = check(evidence, "flips")
    assert result.verdict is FAIL
    assert result.candidate == result.estimate == 60 / 2200


def test_texts_that_only_the_candidate_fails_are_no_flips(evidence):
    for sequence in range(5):
        failed = [comparison(index, failed=index < 10) for index in range(100)]
        add(evidence, sequence, cells=[cell(A, requests=1_000)], comparisons=failed)

    assert check(evidence, "shadow_errors").verdict is FAIL
    assert check(evidence, "flips").candidate == 0.0


def test_shifts_decide_only_where_the_plan_says_so(evidence):
    shifted = [comparison(index, shift=0.02) for index in range(300)]
    add(evidence, comparisons=shifted)
    assert "shifts" not in {result.name for result in run_checks(PLAN, evidence, now=START + 2)}

    plan = quick_plan(thresholds={"max_shift_rate": 0.1})
    assert check(evidence, "shifts", plan=plan).verdict is FAIL
    assert check_levels(plan).fail < check_levels(PLAN).fail


def test_accuracy_speaks_only_with_feedback(evidence):
    for sequence in range(20):
        given = [
            feedback(f"{version}-{sequence}-{index}", version=version, right=index % 10 > wrong)
            for version, wrong in ((A, 0), (B, 5))
            for index in range(20)
        ]
        add(evidence, sequence, feedback=given)

    result = check(evidence, "accuracy")
    assert result.verdict is FAIL
    assert not result.is_required


def times(ratio, count=500):
    return [ratio * (10.0 + index / count) for index in range(count)]


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, PASS), (1.1, INCONCLUSIVE), (1.3, FAIL)])
def test_times_are_judged_by_lane(evidence, ratio, verdict):
    for sequence in range(12):
        cells = [
            cell(A, requests=500, times=times(1.0)),
            cell(B, requests=500, times=times(ratio)),
        ]
        add(evidence, sequence, cells=cells)

    assert check(evidence, "p99.short").verdict is verdict
    if ratio != 1.1:
        assert check(evidence, "typical.short").verdict is verdict
    assert check(evidence, "p99.short").estimate == pytest.approx(ratio, rel=0.02)
    long = check(evidence, "p99.long")
    assert (long.verdict, long.is_required) == (INCONCLUSIVE, False)


def test_beyond_one_half_there_is_no_fair_pair(evidence):
    state = running_state()
    for _ in range(2):
        state = take_step(state, at=START + 100, reason="passed")
        evidence.follow(state.release)
    names = [result.name for result in run_checks(PLAN, evidence, now=START + 101)]

    assert "p99.short" in names
    assert "typical.short" not in names


@pytest.mark.parametrize(
    ("spoil", "now", "reason"),
    [
        (lambda evidence: None, START + 12, "no ingress has reported for 11 s"),
        (
            lambda evidence: evidence.note_fault("lost", at=START + 1.5),
            START + 2,
            "a fault in the figures",
        ),
        (lambda evidence: evidence.heard_at.clear(), START + 2, "no ingress has reported yet"),
    ],
)
def test_a_fault_of_the_source_makes_everything_inconclusive(evidence, spoil, now, reason):
    add(evidence)
    for role in ("stable", "candidate"):
        grow(evidence, role, "short", requests=10_000, errors=0 if role == "stable" else 5_000)
    assert check(evidence, "errors").verdict is FAIL
    spoil(evidence)

    results = run_checks(PLAN, evidence, now=now)

    assert {result.verdict for result in results} == {INCONCLUSIVE}
    assert all(result.reason.startswith(reason) for result in results)


def test_a_fault_is_over_after_a_while(evidence):
    evidence.note_fault("lost", at=START)
    add(evidence, at=START + FAULT_HOLD_S)

    assert "samples" in check(evidence, "errors", now=START + FAULT_HOLD_S + 1).reason


def test_the_chances_of_all_checks_and_steps_add_up_to_the_plans():
    plan = ReleasePlan()
    results = 4 * 8

    assert check_levels(plan).fail * results == pytest.approx(plan.confidence.false_rollback)


def limit(evidence, now=START + 2):
    return find_hard_limit(PLAN.hard_limits, evidence, now=now)


def test_an_error_burst_is_over_the_limit_within_seconds(evidence):
    bad = [cell(A, requests=900, errors=1), cell(B, requests=25, errors=15)]
    add(evidence, 1, cells=bad)
    assert limit(evidence) is None
    add(evidence, 2, cells=bad, at=START + 2)

    found = limit(evidence)
    assert found.name == "error_burst"
    assert (found.value, found.threshold) == (30, 20)
    assert limit(evidence, now=START + 13) is None


@pytest.mark.parametrize(
    "cells",
    [
        [cell(B, requests=100, errors=40)],
        [cell(B, requests=19, errors=19)],
        [cell(B, requests=100, errors=60), cell(A, requests=100, errors=40)],
    ],
)
def test_few_errors_and_an_outage_of_both_are_no_burst(evidence, cells):
    add(evidence, cells=cells)

    assert limit(evidence) is None


def test_a_crash_loop_is_three_deaths_or_twenty_seconds_without_a_replica(evidence):
    for death in range(3):
        assert limit(evidence, now=START + death) is None
        evidence.note_restart(at=START + death)
    assert limit(evidence, now=START + 3).name == "crash_loop"
    assert limit(evidence, now=START + 70) is None

    for second in range(20):
        assert limit(evidence, now=START + 100 + second) is None
        for reporter in ("i1", "i2"):
            one = report(second, reporter=reporter, crashed_versions={B: 3})
            evidence.add(one, at=START + 100 + second)
    assert "in 20 of the last 60 s" in limit(evidence, now=START + 120).reason
