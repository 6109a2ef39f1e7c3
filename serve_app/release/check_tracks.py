"""What each check said over a release, in bounded memory, for pictures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from serve_app.release.check_result import CheckResult
from serve_app.release.status import MAX_SHOWN_POINTS, CheckPoint, CheckTrack, Verdict

LANES = ("short", "long")


@dataclass(kw_only=True)
class _Track:
    threshold: float
    every_s: float
    points: list[CheckPoint] = field(default_factory=list)


class CheckTracks:
    """Keeps a point of each check every so often, and all changes of its verdict.

    When a track is full, every second point goes and the rest come half as often; so a track
    always spans the whole release.
    """

    def __init__(self, *, every_s: float = 1.0) -> None:
        """Begin without points; ``every_s`` is the least time between two at first."""
        self._every_s = every_s
        self._tracks: dict[str, _Track] = {}

    def observe(self, results: Sequence[CheckResult], *, at_s: float) -> None:
        """Take what the checks say now."""
        for result in results:
            track = self._tracks.setdefault(
                result.name, _Track(threshold=result.threshold, every_s=self._every_s)
            )
            track.threshold = result.threshold
            verdict = as_verdict(result)
            points = track.points
            is_due = not points or at_s - points[-1].at_s >= track.every_s
            if is_due or points[-1].verdict != verdict:
                points.append(
                    CheckPoint(at_s=at_s, verdict=verdict, value=_drawable(result.estimate))
                )
            if len(points) > MAX_SHOWN_POINTS:
                # The newest one stays, so that the picture ends at the present.
                track.points = points[-1::-2][::-1]
                track.every_s *= 2.0

    def view(self) -> list[CheckTrack]:
        """Return the tracks as they are shown."""
        views = []
        for full_name, track in self._tracks.items():
            name, lane = split_name(full_name)
            views.append(
                CheckTrack(
                    name=name, lane=lane, threshold=track.threshold, points=list(track.points)
                )
            )
        return views


def split_name(full_name: str) -> tuple[str, str | None]:
    """Return a check's name and lane: ``p99.short`` -> ``("p99", "short")``."""
    name, _, lane = full_name.rpartition(".")
    return (name, lane) if name and lane in LANES else (full_name, None)


def as_verdict(result: CheckResult) -> Verdict:
    """Return a check's verdict as it is shown."""
    verdicts: dict[str, Verdict] = {
        "pass": "pass",
        "fail": "fail",
        "inconclusive": "inconclusive",
    }
    return verdicts[str(result.verdict)]


def _drawable(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
