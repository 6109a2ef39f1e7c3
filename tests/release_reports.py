"""Reports, plans and states for tests of the release desk's pure core."""

import numpy as np

from serve_app.release.evidence import evidence_of
from serve_app.release.plan import plan_from_mapping
from serve_app.release.report import Comparison, Feedback, IngressReport, TrafficCell
from serve_app.release.routing import ServedVersion
from serve_app.release.state import new_state, note_deployed, start_release

STABLE = ServedVersion(version="reviews-aaa/model.onnx", bundle="/bundles/a", app_name=None)
CANDIDATE = ServedVersion(version="reviews-bbb/model.onnx", bundle="/bundles/b", app_name="t-b")
THIRD = ServedVersion(version="reviews-ccc/model.onnx", bundle="/bundles/c", app_name="t-c")
START = 1_000_000.0
QUICK = {
    "steps": [
        {"weight": 0.2, "dwell_s": 100.0},
        {"weight": 0.5, "dwell_s": 100.0},
        {"weight": 1.0, "dwell_s": 100.0},
    ],
    "settle_s": 0.0,
    "report_timeout_s": 10.0,
}


def quick_plan(**changes):
    return plan_from_mapping({**QUICK, **changes}, source="test")


def running_state(plan=None, *, candidate=CANDIDATE, state=None, release_id="r1"):
    """Return a state at its plan's first step."""
    state = start_release(
        state or new_state(STABLE),
        release_id=release_id,
        candidate=candidate,
        plan=plan or quick_plan(),
        at=START,
    )
    return note_deployed(state, at=START)


def fresh_evidence(state, *, tolerance=0.01):
    return evidence_of(
        state.release,
        stable=state.stable.version,
        shift_tolerance=tolerance,
        length_edges=(8, 16, 32),
    )


def cell(version, *, lane="short", requests=0, errors=0, times=()):
    return TrafficCell(
        version=version,
        lane=lane,
        num_requests=requests,
        num_errors=errors,
        latencies_ms=tuple(times),
    )


def comparison(number=0, *, flip=False, failed=False, shift=None, label="good", lane="short"):
    return Comparison(
        request_id=f"q{number}",
        lane=lane,
        num_tokens=12,
        stable_label=label,
        candidate_label="" if failed else ("bad" if flip else label),
        stable_score=0.9,
        candidate_score=0.0 if failed else 0.8,
        shift=(0.4 if flip else 0.0) if shift is None else shift,
        stable_ms=3.0,
        candidate_ms=3.0,
        candidate_failed=failed,
    )


def report(sequence, *, state=None, reporter="i1", number=None, **parts):
    number = number if number is not None else (state.table_number if state else 10)
    return IngressReport(reporter=reporter, sequence=sequence, table_number=number, **parts)


def feedback(number, *, version, right):
    return Feedback(version=version, is_right=right, request_id=f"f{number}")


class Traffic:
    """Draws one report's second of traffic for a state."""

    def __init__(self, seed=0, *, rate=400.0, errors=0.002, flips=0.0, slower=1.0):
        self.rng = np.random.default_rng(seed)
        self.rate, self.errors, self.flips, self.slower = rate, errors, flips, slower
        self.sequence = 0

    def second(self, state):
        weight = state.release.weight if state.release else 0.0
        cells = []
        for served, share, errors, slower in (
            (state.stable, 1.0 - weight, 0.002, 1.0),
            (state.release and state.release.candidate, weight, self.errors, self.slower),
        ):
            for lane, part in (("short", 0.7), ("long", 0.3)):
                num = int(self.rng.poisson(self.rate * share * part))
                if not num:
                    continue
                bad = int(self.rng.binomial(num, errors))
                times = slower * self.rng.lognormal(3.4, 0.3, min(num - bad, 512))
                cells.append(
                    cell(served.version, lane=lane, requests=num, errors=bad, times=times.tolist())
                )
        flips = self.rng.random(10) < self.flips
        self.sequence += 1
        compared = [
            comparison(10 * self.sequence + index, flip=bool(flip))
            for index, flip in enumerate(flips)
        ]
        return report(self.sequence, state=state, cells=cells, comparisons=compared)
