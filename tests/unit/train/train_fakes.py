"""Ranks that are threads of the test process."""

import threading


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

    def _exchange(self, value):
        self._shared[self.rank] = value
        self._barrier.wait(timeout=30)
        found = [self._shared[rank] for rank in range(self.world_size)]
        self._barrier.wait(timeout=30)
        return found


def build_thread_groups(world_size):
    shared, barrier = {}, threading.Barrier(world_size)
    return [ThreadGroup(rank, shared, barrier) for rank in range(world_size)]
