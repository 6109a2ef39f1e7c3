"""The workers of one training as the step sees them: sums over all ranks."""

from typing import Protocol

import torch
from torch import Tensor, distributed


class Group(Protocol):
    """Rank, size and the two collective calls that training needs."""

    rank: int
    world_size: int

    def sum_(self, values: Tensor) -> None:
        """Replace the values by their sums over all ranks."""

    def gather(self, values: list[int]) -> list[int]:
        """Return every rank's values, rank after rank."""


class SingleGroup:
    """One process alone."""

    rank = 0
    world_size = 1

    def sum_(self, values: Tensor) -> None:
        """Leave the values as they are: they are the sums."""

    def gather(self, values: list[int]) -> list[int]:
        """Return the values."""
        return values


class DistributedGroup:
    """The default process group of torch.distributed, which must be initialised."""

    def __init__(self) -> None:
        """Read rank and size."""
        self.rank = distributed.get_rank()
        self.world_size = distributed.get_world_size()

    def sum_(self, values: Tensor) -> None:
        """Replace the values by their sums over all ranks, the same bits on each."""
        distributed.all_reduce(values)

    def gather(self, values: list[int]) -> list[int]:
        """Return every rank's values, rank after rank."""
        found: list[list[int] | None] = [None] * self.world_size
        distributed.all_gather_object(found, values)
        return [value for part in found if part for value in part]


def seed_step(seed: int, *, step: int, rank: int) -> None:
    """Set torch's generators to a state that only these three numbers decide.

    Dropout then draws the same on a resumed run, without any state to restore.
    """
    torch.manual_seed(mix_seed(seed, step=step, rank=rank))


def mix_seed(seed: int, *, step: int, rank: int) -> int:
    """Return 64 bits in which neighbouring steps (from 1; 0 is free) and ranks look unlike."""
    # splitmix64's mixing.
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank) & 0xFFFFFFFFFFFFFFFF
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return mixed ^ (mixed >> 31)
