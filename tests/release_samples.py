"""Statuses of releases to show, and a desk that holds one; nothing behind it."""

import math
import random

from pipeline.contract.errors import ReleaseConflictError
from serve_app.release.status import (
    CheckPoint,
    CheckTrack,
    CheckView,
    Disagreement,
    DisagreementRow,
    DriftView,
    EventView,
    PastRelease,
    ReleaseHistory,
    ReleaseStatus,
    RollbackView,
    ShadowView,
    StepView,
    TrafficView,
    VersionView,
)

NOW_S = 1_796_200_000.0
HOUR_S = 3600.0
STABLE = VersionView(version="3f9c2a71b0de/int8", bundle="/models/reviews/2026-11-20/bundle")
CANDIDATE = VersionView(version="b81e04c5aa17/int8", bundle="/models/reviews/2026-12-01/bundle")
HOSTILE = '<script>document.title="owned"</script><img src=x onerror=alert(1)>\u202e\x1b[31m"\''


def nothing_yet():
    """Return the status before any release."""
    return ReleaseStatus(state="none", now_s=NOW_S, stable=STABLE, num_ingresses=1)


def under_way(**changes):
    """Return the status of a good candidate in its second step."""
    values = {
        "state": "running",
        "now_s": NOW_S,
        "release_id": "r-20261202-0914",
        "stable": STABLE,
        "candidate": CANDIDATE,
        "weight": 0.25,
        "started_s": NOW_S - 35 * HOUR_S,
        "reason": "step 2 of 4 began: every check passed at 5 %",
        "step": StepView(
            number=2,
            num_steps=4,
            weight=0.25,
            dwell_s=24 * HOUR_S,
            remaining_s=13 * HOUR_S + 1234,
            waits_for=["accuracy"],
        ),
        "num_ingresses": 2,
        "traffic": traffic(),
        "shadow": ShadowView(
            share=0.05, texts_per_s=20, num_compared=18_412, num_dropped=219, tolerance=0.02
        ),
        "checks": checks(),
        "tracks": tracks(),
        "disagreements": disagreements(),
        "sample": sample(),
        "drift": drift(),
        "events": events(),
    }
    return ReleaseStatus(**{**values, **changes})


def rolled_back():
    """Return the status after a check took the traffic away."""
    failed = check("p99", "long", "fail", 1.245, threshold=1.1, candidate=412.0, stable=331.0)
    others = [one for one in checks() if (one.name, one.lane) != ("p99", "long")]
    rollback = RollbackView(
        candidate=CANDIDATE,
        stable=STABLE.version,
        decided_by="check",
        reason=failed.reason,
        at_s=NOW_S - 300,
        step_number=1,
        weight=0.05,
        checks=[failed, *others],
        disagreements=sample(),
    )
    return under_way(
        state="rolled_back",
        weight=0.0,
        step=None,
        ended_s=NOW_S - 300,
        reason=failed.reason,
        checks=[failed, *others],
        rollback=rollback,
    )


def hostile():
    """Return a status in which every text is markup, and one is far too long."""
    bad = VersionView(version=HOSTILE, bundle="/" + HOSTILE)
    row = Disagreement(
        request_id=HOSTILE,
        lane=HOSTILE,
        num_tokens=512,
        stable_label=HOSTILE,
        candidate_label="x" * 400,
        stable_score=0.5,
        candidate_score=0.5,
        shift=1.0,
        text=HOSTILE * 30,
    )
    return under_way(
        stable=bad,
        candidate=bad,
        reason=HOSTILE,
        checks=[check(HOSTILE, HOSTILE, "fail", 1.0, **{HOSTILE: 1.0})],
        tracks=[],
        disagreements=[
            DisagreementRow(
                by="label",
                group=HOSTILE,
                num_compared=10,
                num_flips=1,
                num_shifts=0,
                num_failed=0,
            )
        ],
        sample=[row, row.model_copy(update={"text": None, "candidate_label": ""})],
        drift=[
            DriftView(
                version=HOSTILE,
                feature=HOSTILE,
                level="large",
                psi=0.4,
                num_samples=3,
                note=HOSTILE,
            )
        ],
    )


def traffic():
    figures = [(STABLE, "short", 60_112, 3), (STABLE, "long", 14_020, 1)]
    figures += [(CANDIDATE, "short", 20_031, 1), (CANDIDATE, "long", 4_702, 0)]
    return [
        TrafficView(
            version=version.version,
            lane=lane,
            num_requests=requests,
            num_errors=errors,
            p50_ms=14.2 if lane == "short" else 88.4,
            p99_ms=58.1 if lane == "short" else 331.0,
        )
        for version, lane, requests, errors in figures
    ]


def check(name, lane, verdict, measured, *, threshold=0.005, measure="", **sources):
    return CheckView(
        name=name,
        lane=lane,
        verdict=verdict,
        reason=f"{measured:g} against a limit of {threshold:g}",
        values={"measured": measured, **sources},
        thresholds={"measured": threshold},
        measure=measure or "rise of the share of failed requests",
        test="ratio of two quantiles" if name == "p99" else "difference of two shares",
        alpha=0.0025,
        interval=(0.93, None) if name == "p99" else (-0.0004, 0.0006),
        samples={"stable": 74_132, "candidate": 24_733},
        from_s=NOW_S - 11 * HOUR_S,
        until_s=NOW_S,
    )


def checks():
    of_p99 = "P99 of the lane by stable's in the same time"
    p99 = {"threshold": 1.1, "measure": of_p99}
    return [
        check("errors", None, "pass", 0.00001, stable=0.00005, candidate=0.00006),
        check("p99", "short", "pass", 1.02, **p99, stable=57.0, candidate=58.1),
        check("p99", "long", "pass", 0.99, **p99, stable=331.0, candidate=327.7),
        check("flips", None, "pass", 0.0031, candidate=0.0031),
        check("accuracy", None, "inconclusive", 0.01, threshold=0.02, stable=0.07, candidate=0.08),
    ]


def tracks():
    draw = random.Random(3)
    found = []
    for number, one in enumerate(checks()):
        points = []
        for at in range(120):
            ripe = at > 6 + 3 * number and one.name != "accuracy"
            level = 1.0 if one.name == "p99" else 0.003
            value = level * (1 + draw.gauss(0, 0.3) / math.sqrt(at + 2))
            points.append(
                CheckPoint(
                    at_s=NOW_S - (120 - at) * 1050,
                    verdict="pass" if ripe else "inconclusive",
                    value=value if at > 2 else None,
                )
            )
        threshold = next(iter(one.thresholds.values()))
        found.append(CheckTrack(name=one.name, lane=one.lane, threshold=threshold, points=points))
    return found


def disagreements():
    def row(by, group, compared, flips, shifts, failed=0):
        return DisagreementRow(
            by=by,
            group=group,
            num_compared=compared,
            num_flips=flips,
            num_shifts=shifts,
            num_failed=failed,
        )

    return [
        row("all", "all", 18_412, 57, 211, 1),
        row("lane", "short", 14_912, 39, 150),
        row("lane", "long", 3_500, 18, 61, 1),
        row("length", "1–16", 6_020, 9, 40),
        row("length", "17–64", 8_892, 30, 110),
        row("length", "65–256", 2_900, 11, 41),
        row("length", "257–512", 600, 7, 20, 1),
        row("label", "negative", 9_111, 41, 120, 1),
        row("label", "positive", 9_301, 16, 91),
        row("label", "neutral", 0, 0, 0),
    ]


def sample():
    texts = ["Not bad at all, though the ending drags.", None, "A film to see twice. " * 8]
    return [
        Disagreement(
            request_id=f"7d0f3c{number:02d}9b1e4a",
            lane="short" if number % 2 else "long",
            num_tokens=14 + 90 * number,
            stable_label="positive",
            candidate_label="negative" if number else "",
            stable_score=0.61,
            candidate_score=0.55 if number else 0.0,
            shift=0.16,
            text=text,
        )
        for number, text in enumerate(texts)
    ]


def drift():
    levels = [("length", "none", 0.03), ("unknown_tokens", "none", 0.01)]
    levels += [("confidence", "moderate", 0.14), ("labels", "inconclusive", None)]
    return [
        DriftView(
            version=CANDIDATE.version,
            feature=feature,
            level=level,
            psi=psi,
            num_samples=20_031,
            note="lower scores than in training: half of them under 0.8"
            if level == "moderate"
            else "",
        )
        for feature, level, psi in levels
    ]


def events():
    return [
        EventView(at_s=NOW_S - 35 * HOUR_S, kind="started", weight=0.0, reason="lanes start"),
        EventView(at_s=NOW_S - 34.9 * HOUR_S, kind="deployed", weight=0.05, reason="lanes ready"),
        EventView(at_s=NOW_S - 10.9 * HOUR_S, kind="step", weight=0.25, reason="all checks pass"),
    ]


def history():
    """Return two finished releases."""
    past = rolled_back()
    return ReleaseHistory(
        releases=[
            PastRelease(
                release_id="r-20261128-1001",
                state="rolled_back",
                stable=STABLE.version,
                candidate=CANDIDATE,
                started_s=NOW_S - 90 * HOUR_S,
                ended_s=NOW_S - 89 * HOUR_S,
                reason=past.reason,
                rollback=past.rollback,
            ),
            PastRelease(
                release_id="r-20261120-0800",
                state="promoted",
                stable=CANDIDATE.version,
                candidate=STABLE,
                started_s=NOW_S - 290 * HOUR_S,
                ended_s=NOW_S - 194 * HOUR_S,
                reason="every check passed in every step",
            ),
        ]
    )


class FakeDesk:
    """Answers with what it was given, and keeps what it was asked."""

    def __init__(self, status=None, *, past=None, failure=None):
        self.now = status or nothing_yet()
        self.past = past or ReleaseHistory(releases=[])
        self.failure = failure
        self.asked = []

    async def start(self, bundle, *, plan):
        self.asked.append(("start", bundle, plan))
        self._fail_if_told()
        self.now = under_way(state="starting")
        return self.now

    async def pause(self):
        return self._move("pause", "running", "paused")

    async def resume(self):
        return self._move("resume", "paused", "running")

    async def promote(self):
        return self._move("promote", "running", "promoted")

    async def abort(self):
        return self._move("abort", "running", "aborted")

    async def status(self):
        self._fail_if_told()
        return self.now

    async def history(self):
        self._fail_if_told()
        return self.past

    def _move(self, action, needed, then):
        self.asked.append((action,))
        self._fail_if_told()
        if self.now.state != needed:
            raise ReleaseConflictError(
                f"the release is {self.now.state}, not {needed}", remedy="Look at its status."
            )
        self.now = self.now.model_copy(update={"state": then})
        return self.now

    def _fail_if_told(self):
        if self.failure:
            raise self.failure
