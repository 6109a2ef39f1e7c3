"""The figures of a training as Ray's metrics: its dashboard and Prometheus read them."""

import time
from collections.abc import Callable, Mapping

from ray.util.metrics import Counter, Gauge

from pipeline.train.events import Event
from pipeline.train.figures import FIGURES, SKIPPED_STEPS

METRIC_PREFIX = "textlane_train_"
"""Ray puts ``ray_`` before it."""
_SET_EVERY_S = 1.0
"""Ray collects every 10 s; setting a dozen gauges in every fast step would be for nothing."""


class RayMetricsSink:
    """Sets one gauge for each figure; the label ``job`` tells trainings apart."""

    def __init__(self, job: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Make the metrics; needs a process that is connected to Ray."""
        tag_keys, self._clock = ("job",), clock
        self._gauges = {
            figure.name: Gauge(METRIC_PREFIX + figure.name, figure.meaning, tag_keys)
            for figure in FIGURES
            if figure is not SKIPPED_STEPS
        }
        self._skipped = Counter(METRIC_PREFIX + SKIPPED_STEPS.name, SKIPPED_STEPS.meaning, tag_keys)
        for metric in (*self._gauges.values(), self._skipped):
            metric.set_default_tags({"job": job})
        self._num_skipped = 0.0
        self._latest: dict[str, float] = {}
        self._set_s = float("-inf")

    def write_figures(self, figures: Mapping[str, float], *, step: int) -> None:
        """Set the metrics, once a second at most."""
        self._latest.update(figures)
        now_s = self._clock()
        if now_s - self._set_s >= _SET_EVERY_S:
            self._set()
            self._set_s = now_s

    def write_event(self, event: Event) -> None:
        """Leave it to the files: metrics hold numbers."""

    def close(self) -> None:
        """Set the last figures."""
        self._set()

    def _set(self) -> None:
        # Ray 2.60 exports a gauge only once for each time it is set; a measurement of the
        # validation rows is to be seen until the next.
        for name, value in self._latest.items():
            if name in self._gauges:
                self._gauges[name].set(value)
        num_skipped = self._latest.get(SKIPPED_STEPS.name, 0.0)
        if num_skipped > self._num_skipped:  # Ray's counters refuse zero.
            self._skipped.inc(num_skipped - self._num_skipped)
            self._num_skipped = num_skipped
