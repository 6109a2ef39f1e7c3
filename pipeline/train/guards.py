"""What must not go on unseen: no steps, losses that are not finite, fp16 steps all skipped."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.contract.errors import NotFiniteError, TrainingError

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


def not_finite(error: NotFiniteError, *, precision: str, saved: str | None) -> NotFiniteError:
    """Return the error that ends a training at a loss or gradient that is not finite.

    Args:
        error: says what is not finite and of which rows.
        precision: ``train.precision``.
        saved: as :func:`describe_rerun` takes it.
    """
    other = "" if precision == "fp32" else ", set train.precision to fp32"
    return NotFiniteError(
        error.problem,
        place=error.place,
        remedy=f"Lower train.base_lr{other}, or look at these rows of the input. "
        f"{describe_rerun(saved)}",
    )


def describe_rerun(saved: str | None) -> str:
    """Return what the command does when it is run again after a training that was stopped.

    Rates and precision decide what is learned, so a training with a checkpoint is refused under
    others; the rows of a step and its dropout do not depend on when it is done.

    Args:
        saved: file of the checkpoint that the training would go on from, None for none.
    """
    if saved is None:
        return (
            "Nothing is saved yet, so the next run begins anew; with the same settings it comes "
            "to this step again."
        )
    return (
        f"Other settings or rows need a training anew, with --force; with the same ones it goes "
        f"on from {saved} and comes to this step again."
    )


def skipped_too_often(
    skips: SkippedSteps, *, scale: float, row_ids: Sequence[int], saved: str | None
) -> TrainingError:
    """Return the error that ends a training of which every step is skipped.

    Args:
        skips: the counts.
        scale: loss scale that the last step ran under.
        row_ids: the last step's rows.
        saved: as :func:`describe_rerun` takes it.
    """
    return TrainingError(
        f"the gradients overflowed in {skips.in_a_row} steps in a row, the last one at a loss "
        f"scale of {scale:g}",
        place=f"rows {', '.join(map(str, row_ids))}",
        remedy="Set train.precision to bf16 or fp32, or lower train.base_lr. "
        f"{describe_rerun(saved)}",
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
