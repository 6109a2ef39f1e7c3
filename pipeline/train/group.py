"""The workers of one training as the step sees them: sums over all ranks."""

import random
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed

Value = TypeVar("Value")


class Group(Protocol):
    """Rank, size and the collective calls that training needs."""

    rank: int
    world_size: int

    def sum_(self, values: Tensor) -> None:
        """Replace the values by their sums over all ranks."""

    def gather(self, values: list[int]) -> list[int]:
        """Return every rank's values, rank after rank."""

    def gather_objects(self, value: Value) -> list[Value]:
        """Return every rank's value, by rank; it must be picklable."""


class SingleGroup:
    """One process alone."""

    rank = 0
    world_size = 1

    def sum_(self, values: Tensor) -> None:
        """Leave the values as they are: they are the sums."""

    def gather(self, values: list[int]) -> list[int]:
        """Return the values."""
        return values

    def gather_objects(self, value: Value) -> list[Value]:
        """Return the one value."""
        return [value]


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
        return [value for part in self.gather_objects(values) for value in part]

    def gather_objects(self, value: Value) -> list[Value]:
        """Return every rank's value, by rank; it must be picklable."""
        found = [value] * self.world_size
        distributed.all_gather_object(found, value)
        return found


def seed_step(seed: int, *, step: int, rank: int) -> None:
    """Set Python's, numpy's and torch's generators to what these three numbers alone decide.

    Dropout, and whatever else a model draws, is then the same on a resumed run. Torch seeds
    its CUDA generators along with the one of the CPU.
    """
    mixed = mix_seed(seed, step=step, rank=rank)
    random.seed(mixed)
    np.random.seed([mixed & 0xFFFFFFFF, mixed >> 32])
    torch.manual_seed(mixed)


def mix_seed(seed: int, *, step: int, rank: int) -> int:
    """Return 64 bits in which neighbouring steps (from 1; 0 is free) and ranks look unlike."""
    # splitmix64's mixing.
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank) & 0xFFFFFFFFFFFFFFFF
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return mixed ^ (mixed >> 31)
