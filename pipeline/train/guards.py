"""What must not go on unseen: epochs without steps and fp16 steps that are all skipped."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.contract.errors import TrainingError

_MAX_SKIPS_IN_A_ROW = 30
"""The loss scale has then been halved 30 times, from 65536 to 6e-5: it is not the scale.
Chosen, not measured."""


@dataclass(frozen=True, kw_only=True)
class SkippedSteps:
    """fp16 steps whose gradients overflowed; kept in every checkpoint."""

    total: int = 0
    in_a_row: int = 0
    """Up to the last step."""

    def after(self, *, is_skipped: bool) -> "SkippedSteps":
        """Return the counts when one more step is done."""
        if is_skipped:
            return SkippedSteps(total=self.total + 1, in_a_row=self.in_a_row + 1)
        return SkippedSteps(total=self.total)

    @property
    def is_worth_telling(self) -> bool:
        """Whether people are told of the last skipped step: the first, second, fourth, and on."""
        return self.in_a_row > 0 and self.total & (self.total - 1) == 0

    @property
    def is_hopeless(self) -> bool:
        """Whether no further halving of the loss scale will help."""
        return self.in_a_row >= _MAX_SKIPS_IN_A_ROW


def skipped_too_often(
    skips: SkippedSteps, *, scale: float, row_ids: Sequence[int]
) -> TrainingError:
    """Return the error that ends a training of which every step is skipped.

    Args:
        skips: the counts.
        scale: loss scale that the last step ran under.
        row_ids: the last step's rows.
    """
    return TrainingError(
        f"the gradients overflowed in {skips.in_a_row} steps in a row, the last one at a loss "
        f"scale of {scale:g}",
        place=f"rows {', '.join(map(str, row_ids))}",
        remedy="Set train.precision to bf16 or fp32, or lower train.base_lr.",
    )


def demand_steps(epoch_steps: Sequence[int]) -> None:
    """Check that every epoch has a step.

    Raises:
        TrainingError: one has none, or there is no epoch.
    """
    if not epoch_steps or min(epoch_steps) < 1:
        raise TrainingError(
            "an epoch has no steps",
            value=tuple(epoch_steps),
            remedy="Look at the training rows with `textlane inspect`; prepare them again.",
        )
