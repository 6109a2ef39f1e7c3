"""The desk's state and findings as people are shown them."""

import pytest

from serve_app.release.check_result import CheckResult, HardLimit, Verdict
from serve_app.release.check_tracks import CheckTracks, split_name
from serve_app.release.plan import ReleasePlan
from serve_app.release.record import Findings, GroupFigures, Outcome
from serve_app.release.report import Comparison
from serve_app.release.routing import ServedVersion
from serve_app.release.showing import LiveFigures, show_check, show_history, show_state
from serve_app.release.state import (
    end_release,
    new_state,
    note_deployed,
    pause_release,
    promote_release,
    start_release,
)
from serve_app.release.status import MAX_SHOWN_POINTS, CheckView

STABLE = ServedVersion(version="v1", bundle="/m/v1", app_name=None)
CANDIDATE = ServedVersion(version="v2", bundle="/m/v2", app_name="textlane-v2")


def result(name="errors", verdict=Verdict.PASS, **changes):
    values = {
        "name": name,
        "verdict": verdict,
        "is_required": True,
        "reason": "few errors",
        "test": "two proportions",
        "measure": "difference",
        "threshold": 0.005,
        "estimate": 0.001,
        "num_candidate": 100,
        "num_stable": 1900,
    }
    return CheckResult(**{**values, **changes})


def starting():
    return start_release(
        new_state(STABLE), release_id="r1", candidate=CANDIDATE, plan=ReleasePlan(), at=1000.0
    )


def running():
    return note_deployed(starting(), at=1010.0)


def test_before_any_release_there_is_a_stable_version_only():
    status = show_state(new_state(STABLE), LiveFigures(num_ingresses=2), now_s=5.0)

    assert (status.state, status.stable.version, status.candidate) == ("none", "v1", None)
    assert (status.num_ingresses, status.now_s) == (2, 5.0)


def test_a_candidate_whose_lanes_start_has_no_step_and_no_weight():
    status = show_state(starting(), LiveFigures(), now_s=1001.0)

    assert (status.state, status.weight, status.step) == ("starting", 0.0, None)
    assert status.candidate.bundle == "/m/v2"


def test_a_step_tells_what_remains_and_what_it_waits_for():
    findings = Findings(
        results=(
            result(),
            result("p99.long", Verdict.INCONCLUSIVE),
            result("accuracy", Verdict.INCONCLUSIVE, is_required=False),
        )
    )

    status = show_state(running(), LiveFigures(findings=findings), now_s=1010.0 + 3600.0)

    step = status.step
    assert (status.state, status.weight, step.number, step.num_steps) == ("running", 0.05, 1, 4)
    assert (step.dwell_s, step.remaining_s) == (86_400.0, 82_800.0)
    assert step.waits_for == ["p99.long"]


def test_a_dwell_that_is_over_has_nothing_left():
    status = show_state(pause_release(running(), at=1020.0), LiveFigures(), now_s=1e6)

    assert (status.state, status.step.remaining_s) == ("paused", 0.0)


def test_a_rollback_shows_the_failed_check_first_with_its_numbers():
    shown = Comparison(
        request_id="q",
        lane="short",
        num_tokens=4,
        stable_label="a",
        candidate_label="b",
        stable_score=0.9,
        candidate_score=0.8,
        shift=0.7,
        stable_ms=1.0,
        candidate_ms=1.0,
    )
    findings = Findings(
        results=(result(), result("p99.long", Verdict.FAIL, low=1.2, high=1.4, alpha=0.01)),
        groups=(
            GroupFigures(
                kind="label", name="a", num_comparisons=9, num_flips=2, num_shifts=1, num_failures=0
            ),
        ),
        disagreements=(shown,) * 60,
    )
    ended = end_release(running(), Outcome.ROLLED_BACK, at=1100.0, reason="slow", findings=findings)

    status = show_state(ended, LiveFigures(), now_s=1200.0)

    rollback = status.rollback
    assert (status.state, status.weight, status.ended_s) == ("rolled_back", 0.0, 1100.0)
    assert (rollback.decided_by, rollback.reason, rollback.weight) == ("check", "slow", 0.05)
    assert [check.verdict for check in rollback.checks] == ["fail", "pass"]
    failed = rollback.checks[0]
    assert (failed.name, failed.lane, failed.interval) == ("p99", "long", (1.2, 1.4))
    assert (status.disagreements[0].by, status.disagreements[0].num_flips) == ("label", 2)
    assert len(status.sample) == 50
    assert status.events[-1].kind == "rolled_back"


@pytest.mark.parametrize(
    ("outcome", "limit", "decided_by"),
    [
        (
            Outcome.ROLLED_BACK,
            HardLimit(name="error_burst", reason="r", value=30, threshold=20, window_s=10),
            "hard_limit",
        ),
        (Outcome.ABORTED, None, "person"),
    ],
)
def test_a_rollback_tells_who_decided(outcome, limit, decided_by):
    ended = end_release(
        running(), outcome, at=1100.0, reason="r", findings=Findings(hard_limit=limit)
    )

    rollback = show_state(ended, LiveFigures(), now_s=1200.0).rollback

    assert rollback.decided_by == decided_by
    assert [check.name for check in rollback.checks] == ([limit.name] if limit else [])


def test_a_promotion_leaves_one_version_that_answers_all():
    status = show_state(
        promote_release(running(), at=1100.0, reason="all passed"), LiveFigures(), now_s=1200.0
    )

    assert (status.state, status.stable.version, status.weight) == ("promoted", "v2", 1.0)
    assert status.rollback is None


def test_the_newest_release_comes_first_in_the_history():
    first = end_release(running(), Outcome.SUPERSEDED, at=1100.0, reason="one").last
    second = promote_release(running(), at=1200.0, reason="two").last

    past = show_history([first, second])

    assert [(one.reason, one.state) for one in past.releases] == [
        ("two", "promoted"),
        ("one", "superseded"),
    ]


def test_a_check_without_figures_is_shown_without():
    view = show_check(result(estimate=None, verdict=Verdict.INCONCLUSIVE))

    assert (view.values, view.measure) == ({"measured": None}, "difference")
    assert (view.interval, view.alpha, view.thresholds) == (None, None, {"measured": 0.005})


def test_an_open_interval_survives_json():
    view = show_check(result(low=-0.5, high=float("inf"), estimate=float("nan")))

    again = CheckView.model_validate_json(view.to_json())
    assert (again.interval, again.values) == ((-0.5, None), {"measured": None})


@pytest.mark.parametrize(
    ("name", "parts"),
    [("p99.short", ("p99", "short")), ("errors", ("errors", None)), ("a.b", ("a.b", None))],
)
def test_a_check_s_name_holds_its_lane(name, parts):
    assert split_name(name) == parts


def test_a_track_spans_the_whole_release_in_bounded_memory():
    tracks = CheckTracks()

    for second in range(10_000):
        tracks.observe([result(estimate=float(second))], at_s=float(second))

    (track,) = tracks.view()
    times = [point.at_s for point in track.points]
    assert len(times) <= MAX_SHOWN_POINTS
    assert times == sorted(times)
    assert times[0] < 100.0
    assert times[-1] > 9_900.0
    assert track.threshold == 0.005


def test_a_track_misses_no_change_of_the_newest_verdict():
    tracks = CheckTracks(every_s=100.0)

    for second, verdict in enumerate([Verdict.PASS] * 3 + [Verdict.FAIL] + [Verdict.PASS]):
        tracks.observe([result(verdict=verdict)], at_s=float(second))

    (track,) = tracks.view()
    assert [(point.at_s, point.verdict) for point in track.points] == [
        (0.0, "pass"),
        (3.0, "fail"),
        (4.0, "pass"),
    ]
