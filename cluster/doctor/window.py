"""What counters and gauges did between the first and the last scrape; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.doctor.samples import Sample, Scrape

_Series = tuple[str, tuple[tuple[str, str], ...]]
_Wanted = str | tuple[str, ...]
"""The value that a label must have, or those of which it may have any."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Scrapes of the same processes, oldest first."""

    scrapes: Sequence[Scrape]

    @property
    def seconds(self) -> float:
        """From the first scrape to the last."""
        return self.scrapes[-1].time_s - self.scrapes[0].time_s

    def since_start(self) -> "Window":
        """Return the window in which every counter began at 0."""
        nothing = Scrape(time_s=self.scrapes[0].time_s, samples=())
        return Window(scrapes=[nothing, self.scrapes[-1]])

    def increase(self, name: str, **labels: _Wanted) -> float:
        """Return by how much a counter grew, over all its series with these labels."""
        return sum(self.increase_by(name, "", **labels).values())

    def increase_by(self, name: str, key: str, **labels: _Wanted) -> dict[str, float]:
        """Return value of the label ``key`` → increase; a counter that fell began anew at 0.

        A series that was not there before began at 0 as well: its process has just begun.
        """
        found: dict[str, float] = {}
        before: dict[_Series, float] = {}
        for at, scrape in enumerate(self.scrapes):
            for sample in _matching(scrape, name, labels):
                series, value = _series_of(sample), sample.value
                known = before.get(series, 0.0)
                if at > 0:
                    grown = value - known if value >= known else value
                    group = sample.labels.get(key, "")
                    found[group] = found.get(group, 0.0) + grown
                before[series] = value
        return found

    def gauges(self, name: str, **labels: _Wanted) -> list[list[Sample]]:
        """Return the samples of a gauge in each scrape; none where it was not told."""
        return [list(_matching(scrape, name, labels)) for scrape in self.scrapes]

    def most(self, name: str, **labels: _Wanted) -> float:
        """Return the greatest value that a gauge had; 0 where it was never told."""
        values = [sample.value for told in self.gauges(name, **labels) for sample in told]
        return max(values, default=0.0)

    def last(self, name: str, **labels: _Wanted) -> list[Sample]:
        """Return the samples of a gauge where it was told last; Ray drops what is not repeated."""
        told = [samples for samples in self.gauges(name, **labels) if samples]
        return told[-1] if told else []

    def quantile(self, name: str, share: float, **labels: _Wanted) -> float | None:
        """Return a quantile of a histogram's increase, as Prometheus reckons it; None of nothing.

        Within a bucket values are taken as spread evenly; over the last edge it is that edge.
        """
        counts = self.increase_by(f"{name}_bucket", "le", **labels)
        return quantile_of({float(edge): count for edge, count in counts.items()}, share)


def quantile_of(counts: Mapping[float, float], share: float) -> float | None:
    """Return a quantile of cumulative counts by upper edge.

    Example: ``{1: 5, 2: 10, inf: 10}``, 0.75 -> 1.5.
    """
    edges = sorted(counts)
    if not edges or counts[edges[-1]] <= 0:
        return None
    rank, low, below = share * counts[edges[-1]], 0.0, 0.0
    for edge in edges:
        if counts[edge] >= rank:
            if edge == float("inf"):
                return low
            return low + (edge - low) * (rank - below) / max(counts[edge] - below, 1e-9)
        low, below = edge, counts[edge]
    return low


def _matching(scrape: Scrape, name: str, labels: Mapping[str, _Wanted]) -> list[Sample]:
    wanted = {key: (value,) if isinstance(value, str) else value for key, value in labels.items()}
    return [
        sample
        for sample in scrape.samples
        if sample.name == name
        and all(sample.labels.get(key) in values for key, values in wanted.items())
    ]


def _series_of(sample: Sample) -> _Series:
    return sample.name, tuple(sorted(sample.labels.items()))
