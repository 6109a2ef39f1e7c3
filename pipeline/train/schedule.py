"""The learning rate of every step: linear warm-up, then a cosine; pure arithmetic."""

import math
from dataclasses import dataclass

from pipeline.config import TrainSettings

_BASE_BATCH = 256
"""Rows that ``base_lr`` is meant for; the linear scaling rule of Goyal et al. 2017, section 2.1
(https://arxiv.org/abs/1706.02677)."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What decides the learning rate beside the step."""

    max_lr: float
    min_lr: float
    warmup_steps: int
    total_steps: int


def build_schedule(settings: TrainSettings, *, total_steps: int) -> Schedule:
    """Return the schedule of a job: ``max_lr = base_lr × global_batch / 256``."""
    max_lr = settings.base_lr * settings.global_batch / _BASE_BATCH
    return Schedule(
        max_lr=max_lr,
        min_lr=settings.min_lr,
        warmup_steps=math.ceil(settings.warmup_share * total_steps),
        total_steps=total_steps,
    )


def describe_schedule(settings: TrainSettings, *, total_steps: int) -> str:
    """Return the learning rate's numbers and where they come from, for people."""
    schedule = build_schedule(settings, total_steps=total_steps)
    return (
        f"learning rate: up to {schedule.max_lr:.3g} (base_lr {settings.base_lr:g} × global_batch "
        f"{settings.global_batch} / {_BASE_BATCH}) over {schedule.warmup_steps} steps, then a "
        f"cosine down to {schedule.min_lr:g} at step {total_steps}"
    )


def lr_at(schedule: Schedule, step: int) -> float:
    """Return the learning rate of a step; steps count from 1.

    Warm-up ends at ``max_lr`` on step ``warmup_steps``; the cosine (Loshchilov and Hutter
    2017, equation 5, without restarts; https://arxiv.org/abs/1608.03983) ends at ``min_lr``
    on step ``total_steps``.

    Example: max_lr 1, min_lr 0, 2 warm-up steps of 4 -> 0.5, 1, 0.5, 0.
    """
    if step < schedule.warmup_steps:
        return schedule.max_lr * step / schedule.warmup_steps
    first = max(schedule.warmup_steps, 1)
    progress = (step - first) / max(schedule.total_steps - first, 1)
    cosine = (1.0 + math.cos(math.pi * min(progress, 1.0))) / 2.0
    return schedule.min_lr + (schedule.max_lr - schedule.min_lr) * cosine
