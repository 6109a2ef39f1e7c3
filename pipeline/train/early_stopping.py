"""Which measurement of the validation rows was the best, and when none follows any more."""

from dataclasses import dataclass, replace

_LOWER_IS_BETTER = {"loss"}


@dataclass(frozen=True, kw_only=True)
class BestSoFar:
    """The best measurement; kept in every checkpoint, so that a resumed run stops where it would.

    Equal figures are not better: the earlier weights stay the best.
    """

    metric: str
    """A ``train.best_metric``."""
    step: int = 0
    """Steps done at the best measurement; 0 before the first."""
    value: float | None = None
    """Its figure; None before the first."""
    num_worse: int = 0
    """Measurements in a row since that were not better."""

    def after(self, value: float, *, step: int) -> "BestSoFar":
        """Return what is the best when one more measurement is known.

        Example: losses 0.5, 0.4, 0.4 at steps 1, 2, 3 -> step 2 with one that was worse.
        """
        sign = -1.0 if self.metric in _LOWER_IS_BETTER else 1.0
        if self.value is None or sign * value > sign * self.value:
            return BestSoFar(metric=self.metric, step=step, value=value)
        return replace(self, num_worse=self.num_worse + 1)

    def is_exhausted(self, patience: int | None) -> bool:
        """Return whether so many measurements in a row were not better; None never ends."""
        return patience is not None and self.num_worse >= patience
