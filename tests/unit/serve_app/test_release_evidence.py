import json
from dataclasses import replace

import pytest
from pydantic import TypeAdapter
from release_reports import (
    CANDIDATE,
    STABLE,
    START,
    THIRD,
    Traffic,
    cell,
    comparison,
    feedback,
    fresh_evidence,
    quick_plan,
    report,
    running_state,
)

from serve_app.release.evidence import Evidence
from serve_app.release.report import LiveProfile
from serve_app.release.state import take_step
from serve_app.release.time_histogram import TimeHistogram

A, B = STABLE.version, CANDIDATE.version


@pytest.fixture
def state():
    return running_state()


@pytest.fixture
def evidence(state):
    return fresh_evidence(state)


def test_requests_are_added_by_version_and_lane(evidence):
    cells = [
        cell(A, requests=5, errors=1, times=[1.0, 2.0]),
        cell(B, requests=2),
        cell(B, lane="long", requests=3, errors=3),
        cell(THIRD.version, requests=9, errors=9),
    ]
    for sequence in (1, 2):
        assert evidence.add(report(sequence, cells=cells), at=START + sequence)

    assert evidence.lanes["stable"]["short"].num_requests == 10
    assert evidence.lanes["stable"]["short"].num_errors == 2
    assert evidence.lanes["stable"]["short"].times.num_samples == 4
    assert {lane: tally.num_requests for lane, tally in evidence.lanes["candidate"].items()} == {
        "short": 4,
        "long": 6,
    }
    assert evidence.window_end == START + 2


def test_a_report_that_comes_twice_or_late_counts_once(evidence):
    one = report(7, cells=[cell(B, requests=1)])

    assert evidence.add(one, at=START + 1)
    assert not evidence.add(one, at=START + 2)
    assert not evidence.add(replace(one, sequence=6), at=START + 2)
    assert evidence.add(replace(one, reporter="i2"), at=START + 2)
    assert evidence.lanes["candidate"]["short"].num_requests == 2


def test_what_was_answered_before_the_step_does_not_count(evidence, state):
    old = report(1, number=state.release.step_table_number - 1, cells=[cell(B, requests=1)])

    assert evidence.add(old, at=START + 1)
    assert evidence.lanes["candidate"] == {}


def test_a_step_settles_first():
    evidence = fresh_evidence(running_state(quick_plan(settle_s=30.0)))

    for sequence, at in ((1, 29.0), (2, 31.0)):
        evidence.add(report(sequence, cells=[cell(B, requests=1)]), at=START + at)

    assert evidence.lanes["candidate"]["short"].num_requests == 1
    assert evidence.moments[0].candidate_requests == 1


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ({"cells": [cell(B, requests=1, errors=2)]}, "2 errors in 1 requests"),
        ({"cells": [cell(B, requests=-1, errors=-1)]}, "-1 errors"),
        ({"cells": [cell(B, requests=1, times=[1.0, 1.0])]}, "2 times of 1 requests"),
        ({"cells": [cell(B, requests=1, times=[float("nan")])]}, "no number"),
        ({"cells": [cell(B, requests=1, times=[-1.0])]}, "negative"),
        ({"cells": [cell(B, requests=600, times=[1.0] * 513)]}, "513 times"),
        ({"comparisons": [comparison(shift=float("inf"))]}, "comparison's figures"),
        ({"comparisons": [comparison()] * 513}, "513 comparisons"),
        ({"num_dropped_comparisons": -1}, "comparisons"),
        ({"crashed_versions": {B: -1}}, "crashes is negative"),
    ],
)
def test_a_report_that_contradicts_itself_is_a_fault_and_counts_nothing(evidence, parts, fault):
    assert not evidence.add(report(1, **parts), at=START + 1)

    assert fault in evidence.fault
    assert evidence.fault_at == START + 1
    assert evidence.last_heard_at is None


def test_comparisons_are_counted_by_group_and_sampled(evidence):
    items = [
        comparison(1),
        comparison(2, flip=True, lane="long"),
        replace(comparison(3, flip=True, shift=0.005), stable_score=0.503, candidate_score=0.5),
        comparison(4, shift=0.02, label="PER"),
        comparison(5, failed=True),
    ]
    evidence.add(report(1, comparisons=items, num_dropped_comparisons=3), at=START + 1)

    total = evidence.comparisons["all"]["all"]
    # A flip within the tolerance is what one version does to itself.
    assert (total.num_comparisons, total.num_flips, total.num_shifts, total.num_failures) == (
        5,
        1,
        2,
        1,
    )
    assert evidence.comparisons["lane"]["long"].num_flips == 1
    assert evidence.comparisons["length"]["9–16"].num_comparisons == 5
    assert evidence.comparisons["label"]["PER"].num_shifts == 1
    assert [item.request_id for item in evidence.disagreements] == ["q2", "q5"]
    assert evidence.num_dropped == 3


def test_versions_without_a_label_in_common_disagree(evidence):
    evidence.add(report(1, comparisons=[comparison(1, flip=True, shift=0.0)]), at=START + 1)

    assert evidence.comparisons["all"]["all"].num_flips == 1


def test_the_sample_of_disagreements_is_bounded_and_even():
    evidence = fresh_evidence(running_state(quick_plan(shadow={"kept_disagreements": 20})))
    for sequence in range(40):
        items = [comparison(100 * sequence + index, flip=True) for index in range(100)]
        evidence.add(report(sequence, comparisons=items), at=START + 1)

    numbers = [int(item.request_id[1:]) for item in evidence.disagreements]
    assert len(set(numbers)) == 20
    assert 1_000 < sum(numbers) / 20 < 3_000


def test_feedback_counts_once_for_a_request(evidence):
    given = [feedback(1, version=B, right=False), feedback(1, version=B, right=False)]
    evidence.add(report(1, feedback=[*given, feedback(2, version=A, right=True)]), at=START + 1)

    assert (evidence.feedback["candidate"].num_labels, evidence.feedback["stable"].num_labels) == (
        1,
        1,
    )
    assert evidence.feedback["candidate"].num_wrong == 1


def test_a_step_begins_anew_and_a_later_one_has_stables_first_as_baseline(evidence, state):
    evidence.add(report(1, cells=[cell(A, requests=80), cell(B, requests=20)]), at=START + 1)
    for _ in range(2):
        state = take_step(state, at=START + 100, reason="passed")
        evidence.follow(state.release)
        assert evidence.lanes == {"stable": {}, "candidate": {}}

    lanes, baseline = evidence.stable_lanes()
    assert evidence.weight == 1.0
    assert lanes["short"].num_requests == 80
    assert baseline == "step 1, when it had 80% of the keys"


def test_evidence_goes_through_json(state):
    evidence, traffic = fresh_evidence(state), Traffic(flips=0.5)
    profile = LiveProfile(
        version=B,
        length_counts=(1, 2),
        num_tokens=9,
        num_unknown_tokens=1,
        confidence_counts=(0,) * 9 + (3,),
        label_counts={"good": 3},
    )
    for second in range(3):
        evidence.add(traffic.second(state), at=START + second + 1)
    parts = {"feedback": [feedback(1, version=A, right=True)], "profiles": [profile]}
    evidence.add(report(99, state=state, **parts), at=START + 9)
    evidence.note_restart(at=START + 9)

    adapter = TypeAdapter(Evidence)
    copy = adapter.validate_json(adapter.dump_json(evidence))

    assert adapter.dump_json(copy) == adapter.dump_json(evidence)
    assert not copy.add(report(99, state=state), at=START + 10)
    assert len(json.dumps(adapter.dump_python(evidence, mode="json"))) < 100_000


def test_a_histogram_gives_order_statistics_within_a_hundredth():
    times = TimeHistogram()
    times.add([0.0, 1.0, 10.0, 1e9])

    assert times.bounds_of_rank(0) == (0.0, 0.0)
    low, high = times.bounds_of_rank(3)
    assert low <= 10.0 <= high <= 1.0101 * low
    assert times.bounds_of_rank(5) == (float("inf"), float("inf"))
    assert times.quantile(0.5) == pytest.approx(1.0, rel=0.01)
    assert TimeHistogram().quantile(0.5) is None
