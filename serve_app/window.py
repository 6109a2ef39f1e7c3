"""Which waiting texts run next, and in which groups; pure numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.contract.batching import RUN_TOKENS, group_by_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLimits:
    """What one model run and one window may hold."""

    max_batch_tokens: int
    """Padded tokens (rows × longest) of one model run; a text that is longer runs alone."""
    max_batch_requests: int
    """Rows of one model run."""
    window_batches: int
    """Full model runs' worth of waiting texts that are sorted together. More means less padding
    under load, and more texts that may run before an older one."""
    run_cost_tokens: int = RUN_TOKENS
    """Padded tokens that are added to a run to save another one."""

    @property
    def window_rows(self) -> int:
        """Rows of one window."""
        return self.window_batches * self.max_batch_requests

    @property
    def window_tokens(self) -> int:
        """Tokens of one window, without padding."""
        return self.window_batches * self.max_batch_tokens

    def batches_of(self, *, num_rows: int, num_tokens: int) -> float:
        """Return how many full model runs' worth of work rows and their tokens are."""
        return max(num_rows / self.max_batch_requests, num_tokens / self.max_batch_tokens)


def form_window(lengths: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """Return the groups of the next window, in the order in which they are to run.

    The window holds the oldest texts and no younger one in place of an older: as many as
    its limits allow, one at least. They are sorted by length and cut, and the groups run in
    the order of their oldest text. The next window is to be formed when this one has run, so
    a text is overtaken by less than one window of texts, however many come after it.

    Measured 2026-12-01 on 2 cores: sorting and cutting doubles the short texts per second
    against batches in order of arrival and gives 8 times the mixed ones.

    Args:
        lengths: tokens of each waiting text, oldest first.
        limits: of the groups and of the window.

    Returns:
        Groups of indices into ``lengths``, ascending inside a group.

    Example: lengths ``[9, 3, 8, 4]``, 10 tokens, 32 rows, 3 batches -> ``[[0], [1, 3], [2]]``.
    """
    num_rows = num_tokens = 0
    for length in lengths[: limits.window_rows]:
        if num_rows and num_tokens + length > limits.window_tokens:
            break
        num_rows, num_tokens = num_rows + 1, num_tokens + length
    groups = group_by_tokens(
        lengths[:num_rows],
        max_batch_tokens=limits.max_batch_tokens,
        max_batch_requests=limits.max_batch_requests,
        run_tokens=limits.run_cost_tokens,
    )
    return sorted(groups, key=lambda group: group[0])
