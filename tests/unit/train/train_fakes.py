"""Ranks that are threads of the test process, and readers that read nothing."""

import os
import random
import threading
import time
import weakref

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.data.plan import StepBatch
from pipeline.train.loader import open_loader


class ThreadGroup:
    """Ranks that are threads: every call waits for all and then sums in rank order."""

    def __init__(self, rank, shared, barrier):
        self.rank, self._shared, self._barrier = rank, shared, barrier
        self.world_size = barrier.parties

    def sum_(self, values):
        parts = self._exchange(values.clone())
        values.copy_(sum(parts[1:], start=parts[0].clone()))

    def gather(self, values):
        return [value for part in self._exchange(values) for value in part]

    def gather_objects(self, value):
        return self._exchange(value)

    def _exchange(self, value):
        self._shared[self.rank] = value
        self._barrier.wait(timeout=30)
        found = [self._shared[rank] for rank in range(self.world_size)]
        self._barrier.wait(timeout=30)
        return found


def build_thread_groups(world_size):
    shared, barrier = {}, threading.Barrier(world_size)
    return [ThreadGroup(rank, shared, barrier) for rank in range(world_size)]


class CrampedModel(nn.Module):
    """A model in whose memory passes of ``capacity`` padded tokens at most find room."""

    def __init__(self, model, *, capacity, fails_in="forward", kind=torch.OutOfMemoryError):
        super().__init__()
        self.model, self.capacity, self.shapes = model, capacity, []
        self._fails_in, self._kind = fails_in, kind

    def forward(self, input_ids, attention_mask):
        self.shapes.append(tuple(input_ids.shape))
        logits = self.model(input_ids, attention_mask)
        if input_ids.numel() > self.capacity:
            if self._fails_in == "forward":
                self._run_out()
            logits.register_hook(lambda _: self._run_out())
        return logits

    def _run_out(self):
        if self._kind is None:
            # What torch itself says of an allocation that cannot be.
            torch.empty(1 << 45)
        raise self._kind("CUDA out of memory. Tried to allocate 2.50 MiB. GPU 0 has")


class Listener:
    """Remembers what it is told."""

    def __init__(self):
        self.told, self.num_closed = [], 0

    def on_step(self, record):
        self.told.append(record)

    def on_validation(self, record):
        self.told.append(record)

    def on_event(self, event):
        self.told.append(event)

    def close(self):
        self.num_closed += 1


class Notices:
    """Says why to save at some calls; every call is one step."""

    def __init__(self, *calls):
        self.num_calls, self._calls = 0, calls

    def __call__(self):
        self.num_calls += 1
        return "the machine goes in 60 s" if self.num_calls in self._calls else None


class LivingBytes(TorchDispatchMode):
    """Adds up the bytes of all storages that real operations make, as long as they live."""

    def __init__(self):
        super().__init__()
        self.now, self.most, self._known = 0, 0, weakref.WeakSet()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        before = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        self._known.update(tensor.untyped_storage() for tensor in before)
        made = func(*args, **kwargs)
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage() not in self._known:
                storage = tensor.untyped_storage()
                self._known.add(storage)
                self._add(storage.nbytes())
                weakref.finalize(storage, self._add, -storage.nbytes())
        return made

    def _add(self, size):
        self.now += size
        self.most = max(self.most, self.now)


class RandomReader:
    """Gives three draws, one of each generator that a process has."""

    def read(self, indices, *, epoch):
        return [random.random(), float(np.random.random()), float(torch.rand(()))]


class FailingReader:
    """Cannot read."""

    def read(self, indices, *, epoch):
        raise RuntimeError("stopped by the test")


class PidReader:
    """Gives the process that it reads in."""

    def read(self, indices, *, epoch):
        return [os.getpid()]


def load_forever():
    """Print the ids of two reading processes and hold on to them."""
    batches = [StepBatch(step=step, epoch=0, rows=np.zeros(1, int)) for step in range(1, 99)]
    with open_loader(batches, open_reader=PidReader, num_workers=2, seed=0) as steps:
        for _ in range(2):
            print(*next(steps).micro_batches, flush=True)
        time.sleep(600)


if __name__ == "__main__":
    load_forever()
