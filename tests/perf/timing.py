"""Times taken between optimiser updates, by the same hook for every loop."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch.optim.optimizer import register_optimizer_step_post_hook

THREADS = 2
WARM_UP_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a contestant did after its warm-up."""

    seconds: float
    tokens: int
    """Without padding."""

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


@contextmanager
def update_times() -> Iterator[list[float]]:
    """Collect the time of every optimiser update in this process."""
    times: list[float] = []
    hook = register_optimizer_step_post_hook(lambda *_: times.append(time.perf_counter()))
    try:
        yield times
    finally:
        hook.remove()


def measure(work: Callable[[], object], batch_tokens: list[int]) -> Figures:
    """Run a contestant and return its figures without the warm-up.

    Args:
        work: makes one update for each batch.
        batch_tokens: tokens of every batch, without padding, in order.
    """
    with update_times() as times:
        work()
    # One more where the optimiser is first made to allocate what it keeps.
    times = times[-len(batch_tokens) :]
    assert len(times) == len(batch_tokens)
    return Figures(
        seconds=times[-1] - times[WARM_UP_STEPS - 1], tokens=sum(batch_tokens[WARM_UP_STEPS:])
    )
