"""What an ingress has seen since its last report, in bounded memory."""

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from serve_app.release.live_profiles import ProfileLog
from serve_app.release.report import (
    MAX_COMPARISONS,
    MAX_LATENCIES,
    Comparison,
    Feedback,
    IngressReport,
    TrafficCell,
)
from serve_app.request_record import RequestRecord

MAX_FEEDBACK = 512
"""Feedback of one report; what comes beyond it in one second is left out."""
_LANE_LOST_CODE = "not_ready"
_CLIENT_S_FAULTS = range(400, 500)
_FIRST_SERVICE_FAULT = 500


@dataclass(slots=True)
class _Cell:
    num_requests: int = 0
    num_errors: int = 0
    num_times: int = 0
    latencies_ms: list[float] = field(default_factory=list)


class TrafficLog:
    """Counts users' requests of a release under way; used from one event loop.

    ``is_open`` is False while no release is under way: then a request costs a look at it.
    """

    def __init__(self, *, predict_paths: Collection[str], seed: int | None = None) -> None:
        """Begin empty and closed.

        Args:
            predict_paths: other paths are not counted.
            seed: of the sample of times, where there are too many; None draws one.
        """
        self.is_open = False
        self.profiles = ProfileLog()
        """Of the answered texts, for drift."""
        self._predict_paths = predict_paths
        self._random = random.Random(seed)
        self._forget()

    def _forget(self) -> None:
        self._cells: dict[tuple[str, str], _Cell] = {}
        self._comparisons: list[Comparison] = []
        self._num_dropped = 0
        self._feedback: list[Feedback] = []
        self._crashes: Counter[str] = Counter()

    def observe_request(self, record: RequestRecord) -> None:
        """Count one request at its end: what its version did, no client's mistake, no 429."""
        if not self.is_open or record.path not in self._predict_paths or not record.lane:
            return
        if record.status in _CLIENT_S_FAULTS:
            return
        cell = self._cells.setdefault((record.version, record.lane), _Cell())
        cell.num_requests += 1
        if record.status >= _FIRST_SERVICE_FAULT or record.num_let_down:
            cell.num_errors += 1
            self._crashes[record.version] += record.code == _LANE_LOST_CODE
            return
        cell.num_times += 1
        if len(cell.latencies_ms) < MAX_LATENCIES:
            cell.latencies_ms.append(record.total_ms)
            return
        # Each of n has been kept with the same chance (Vitter 1985, algorithm R).
        place = self._random.randrange(cell.num_times)
        if place < MAX_LATENCIES:
            cell.latencies_ms[place] = record.total_ms

    def add_comparison(self, comparison: Comparison) -> None:
        """Keep what both versions made of a text."""
        if len(self._comparisons) < MAX_COMPARISONS:
            self._comparisons.append(comparison)
        else:
            self._num_dropped += 1

    def drop_comparisons(self, num_texts: int) -> None:
        """Count texts that were to be compared and could not be."""
        self._num_dropped += num_texts

    def add_feedback(self, feedback: Feedback) -> None:
        """Keep what a user said."""
        if self.is_open and len(self._feedback) < MAX_FEEDBACK:
            self._feedback.append(feedback)

    def take_report(
        self,
        *,
        reporter: str,
        sequence: int,
        table_number: int,
    ) -> IngressReport:
        """Return everything since the report before, and begin anew."""
        crashed: Mapping[str, int] = {name: n for name, n in self._crashes.items() if n}
        report = IngressReport(
            reporter=reporter,
            sequence=sequence,
            table_number=table_number,
            cells=[
                TrafficCell(
                    version=version,
                    lane=lane,
                    num_requests=cell.num_requests,
                    num_errors=cell.num_errors,
                    latencies_ms=cell.latencies_ms,
                )
                for (version, lane), cell in self._cells.items()
            ],
            comparisons=self._comparisons,
            num_dropped_comparisons=self._num_dropped,
            feedback=self._feedback,
            profiles=self.profiles.take(),
            crashed_versions=crashed,
        )
        self._forget()
        return report
