"""Where a training goes on: the newest good checkpoint, put back on every rank."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from pipeline.contract.errors import TrainingError
from pipeline.train.checkpoint import Choice, choose_checkpoint, load_checkpoint, restore_state
from pipeline.train.early_stopping import BestSoFar
from pipeline.train.group import Group
from pipeline.train.guards import SkippedSteps
from pipeline.train.rng import restore_rng
from pipeline.train.step import Optimisation
from pipeline.train.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a training begins with beside weights, optimiser and loss scale."""

    step: int
    """Steps done; 0 for a new training."""
    file: str | None
    """Name of the checkpoint that it goes on from; None for a new training."""
    is_finished: bool
    """Whether there is nothing left to do."""
    best: BestSoFar
    skips: SkippedSteps
    micro_batch: int
    """Rows in one forward pass."""
    message: str | None
    """What people should know of going on; None for a new training."""


def resume(run: TrainingRun, state: Optimisation, *, group: Group) -> Start:
    """Put the newest good checkpoint back, the same on every rank, and return its counts.

    Rank 0 alone looks for it: ranks that see different files would train different models.

    Raises:
        TrainingError: the checkpoint is of another training; on every rank.
    """
    own = choose_checkpoint(run.checkpoint_dir) if group.rank == 0 else Choice(path=None)
    choice = group.gather_objects(own)[0]
    if choice.path is None:
        return Start(
            step=0,
            file=None,
            is_finished=False,
            best=BestSoFar(metric=run.job.train.best_metric),
            skips=SkippedSteps(),
            micro_batch=run.job.train.micro_batch,
            message=_describe(choice, notes=[]) if choice.passed_over else None,
        )
    saved = load_checkpoint(choice.path)
    _demand_same(run, saved, place=str(choice.path))
    step = restore_state(state, saved)
    notes = _restore_generators(saved["rng"], group=group, device=state.device)
    return Start(
        step=step,
        file=choice.path.name,
        is_finished=choice.is_final,
        best=_best_of(run, saved),
        skips=SkippedSteps(**saved["skips"]),
        micro_batch=_micro_batch_of(run, saved),
        message=_describe(choice, notes=notes),
    )


def _demand_same(run: TrainingRun, saved: dict[str, Any], *, place: str) -> None:
    wanted: dict[str, Any] = {
        "fingerprint": run.facts["fingerprint"],
        "total_steps": run.total_steps,
        "schedule": asdict(run.schedule),
    }
    for name, value in wanted.items():
        if saved[name] != value:
            raise TrainingError(
                f"the checkpoint is of another training: its {name} is {saved[name]}",
                place=place,
                value=value,
                remedy="Train anew with --force, or set another output_dir.",
            )


def _restore_generators(
    saved: list[dict[str, Any]], *, group: Group, device: torch.device
) -> list[str]:
    if len(saved) == group.world_size:
        restore_rng(saved[group.rank], device)
        return []
    # Every step seeds the generators anew, so nothing but dropout's cut into ranks differs.
    return [
        f"with {group.world_size} workers instead of {len(saved)}, so losses differ from those "
        "of an unbroken run in rounding and dropout"
    ]


def _best_of(run: TrainingRun, saved: dict[str, Any]) -> BestSoFar:
    best = BestSoFar(**saved["best"])
    metric = run.job.train.best_metric
    return best if best.metric == metric else BestSoFar(metric=metric)


def _micro_batch_of(run: TrainingRun, saved: dict[str, Any]) -> int:
    # What memory allowed is kept, unless somebody has set another size since.
    is_set_anew = saved["micro_batch"]["set"] != run.job.train.micro_batch
    return run.job.train.micro_batch if is_set_anew else int(saved["micro_batch"]["used"])


def _describe(choice: Choice, *, notes: list[str]) -> str:
    begin = f"goes on from {choice.path.name}" if choice.path else "begins again at step 0"
    passed_over = [f"passed over {fault}" for fault in choice.passed_over]
    return "; ".join([begin, *passed_over, *notes])
