"""Decides how a bundle is best served, from what its runs cost and how long its texts are.

A lane under load always has texts waiting, sorted by length, so that a text of so many
tokens runs in a batch of its like that fills the budget: it costs the batch's seconds over
its rows. Pure; all of a choice but the batch's rows is closed arithmetic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from pipeline.contract.batching import IntArray, group_by_tokens
from pipeline.contract.settings import Settings
from serve_app.cost_model import CostFit, FloatArray
from serve_app.warm_up import MIN_TOKENS, warm_up_shapes

CLOSE = 0.05
"""What is at most this share worse than the best is as good, and the simpler one is taken."""
_CLOSE_ROWS = 0.01
"""The same for the texts to collect: sorting more of them gains a little each time."""
_DRAWS = 1024
# JSON has lists for tuples, which strict settings would refuse.
_ShapeField = Annotated[tuple[int, int], Field(strict=False)]


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long the texts are."""

    source: str
    """Where the lengths are from, for people."""
    tokens: IntArray
    """Distinct lengths, ascending, ``int64 [n]``."""
    shares: FloatArray
    """Share of the texts of each, ``float64 [n]``, sum 1."""


class LaneChoice(Settings):
    """One lane as chosen."""

    texts_share: float = Field(ge=0.0, le=1.0)
    """Share of the texts that go to this lane."""
    load_s: float = Field(ge=0.0)
    """Seconds of this lane's work for each text that arrives at either lane."""
    warm_up: tuple[_ShapeField, ...] = Field(strict=False)
    """(batch, seq) that a replica runs before its first request."""


class Reasons(Settings):
    """Why each value was chosen, in words."""

    threads_per_replica: str
    short_max_tokens: str
    max_batch_tokens: str
    max_batch_requests: str


class TuningChoice(Settings):
    """Settings of serving, under the names that ServeSettings has for them."""

    threads_per_replica: int = Field(ge=1)
    short_max_tokens: int = Field(ge=1)
    max_batch_tokens: int = Field(ge=1)
    max_batch_requests: int = Field(ge=1)
    texts_per_s: float = Field(gt=0.0)
    """Most texts per second that one replica of each lane should bear."""
    short: LaneChoice
    long: LaneChoice
    reasons: Reasons


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a choice must stay within."""

    cpus: int
    max_seq_len: int
    max_batch_rows: int
    """Rows of one run that the bundle allows."""
    most_tokens: int
    """Padded tokens of the largest run that was measured."""


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The best that can be done with one number of threads."""

    fit: CostFit
    budget: int
    cut: int
    short_s: float
    long_s: float
    texts_per_s: float
    alone_s: float


def choose(fits: Sequence[CostFit], *, lengths: Lengths, bounds: Bounds) -> TuningChoice:
    """Return the settings for these costs and lengths.

    Raises:
        ValueError: no fits, or a length is not in 1 … ``max_seq_len``.
    """
    if not fits or lengths.tokens[0] < 1 or lengths.tokens[-1] > bounds.max_seq_len:
        raise ValueError(f"need fits and lengths in 1 … {bounds.max_seq_len}")
    plans = [_plan(fit, lengths, bounds) for fit in fits]
    best = max(plan.texts_per_s for plan in plans)
    good = [plan for plan in plans if plan.texts_per_s >= best * (1.0 - CLOSE)]
    plan = min(good, key=lambda plan: (plan.alone_s, plan.fit.threads))
    rows = choose_rows(plan.fit, lengths, cut=plan.cut, budget=plan.budget, bounds=bounds)
    is_short = lengths.tokens <= plan.cut
    short_share = min(1.0, float(lengths.shares[is_short].sum()))
    sizes = {"max_batch_tokens": plan.budget, "max_batch_requests": rows}
    warm_up = {
        "short": warm_up_shapes(min_tokens=MIN_TOKENS, max_tokens=plan.cut, **sizes),
        "long": warm_up_shapes(min_tokens=plan.cut + 1, max_tokens=bounds.max_seq_len, **sizes),
    }
    return TuningChoice(
        threads_per_replica=plan.fit.threads,
        short_max_tokens=plan.cut,
        max_batch_tokens=plan.budget,
        max_batch_requests=rows,
        texts_per_s=plan.texts_per_s,
        short=LaneChoice(
            texts_share=short_share, load_s=plan.short_s, warm_up=tuple(warm_up["short"])
        ),
        long=LaneChoice(
            texts_share=1.0 - short_share, load_s=plan.long_s, warm_up=tuple(warm_up["long"])
        ),
        reasons=_reasons(plan, plans, rows=rows, lengths=lengths, bounds=bounds),
    )


def seconds_per_text(
    fit: CostFit, tokens: IntArray, *, max_batch_tokens: int, max_batch_requests: int
) -> FloatArray:
    """Return what a text of each length costs in a full batch of its like, ``float64 [n]``.

    Example: 512 padded tokens, 32 requests: 128 tokens run 4 at once, 8 tokens 32 at once.
    """
    rows = np.clip(max_batch_tokens // tokens, 1, max_batch_requests)
    return fit.seconds(rows, tokens) / rows


def choose_budget(fit: CostFit, lengths: Lengths, bounds: Bounds) -> int:
    """Return the smallest budget of padded tokens within 5 % of the most tokens per second.

    Candidates are ``max_seq_len`` (a longest text must fit) and, up to the largest run that
    was measured, the powers of two and their halfway points.
    """
    steps = [size << power for power in range(bounds.most_tokens.bit_length()) for size in (2, 3)]
    within = [step for step in steps if bounds.max_seq_len < step <= bounds.most_tokens]
    return _smallest_good(
        [bounds.max_seq_len, *within],
        lambda budget: _work(
            seconds_per_text(
                fit,
                lengths.tokens,
                max_batch_tokens=budget,
                max_batch_requests=bounds.max_batch_rows,
            ),
            lengths,
        ),
        close=CLOSE,
    )


def choose_cut(text_s: FloatArray, lengths: Lengths, *, max_seq_len: int) -> int:
    """Return the length up to which texts are short, so that the busier lane has least to do.

    Args:
        text_s: seconds of a text of each length, ``float64 [n]``.
        lengths: of the texts.
        max_seq_len: longest text that is served; the long lane always gets at least those.
    """
    candidates = lengths.tokens[lengths.tokens < max_seq_len]
    if not len(candidates):
        return max(1, max_seq_len // 2)
    short = np.cumsum(text_s * lengths.shares)[: len(candidates)]
    busier = np.maximum(short, _work(text_s, lengths) - short)
    return int(candidates[int(np.argmin(busier))])


def choose_rows(fit: CostFit, lengths: Lengths, *, cut: int, budget: int, bounds: Bounds) -> int:
    """Return the fewest texts to collect within 1 % of the least seconds for all texts.

    All that a lane collects is answered together, so a text waits less for fewer; but among
    few there are not enough of one length to fill a batch without padding. How many are is
    found by grouping texts of these lengths as serving does, in a fixed mixed order. Never
    fewer than fill the budget at the median length: what a call costs around the model run
    is not measured here.
    """
    where = np.searchsorted(np.cumsum(lengths.shares), (np.arange(_DRAWS) + 0.5) / _DRAWS)
    drawn = lengths.tokens[np.minimum(where, len(lengths.tokens) - 1)]
    np.random.default_rng(0).shuffle(drawn)
    lanes = [drawn[drawn <= cut].tolist(), drawn[drawn > cut].tolist()]

    def cost(rows: int) -> float:
        windows = [lane[at : at + rows] for lane in lanes for at in range(0, len(lane), rows)]
        groups = [
            [window[index] for index in group]
            for window in windows
            for group in group_by_tokens(window, max_batch_tokens=budget, max_batch_requests=rows)
        ]
        sizes = np.array([len(group) for group in groups])
        return float(fit.seconds(sizes, np.array([max(group) for group in groups])).sum())

    most = bounds.max_batch_rows
    least = min(most, max(1, budget // int(np.median(drawn))))
    candidates = sorted({1 << power for power in range(most.bit_length())} | {most})
    return _smallest_good([rows for rows in candidates if rows >= least], cost, close=_CLOSE_ROWS)


def _smallest_good(candidates: Sequence[int], cost: Callable[[int], float], *, close: float) -> int:
    """Return the first candidate whose rate, 1 / cost, is within a share of the best."""
    costs = [cost(candidate) for candidate in candidates]
    limit = min(costs) / (1.0 - close)
    return next(c for c, spent in zip(candidates, costs, strict=True) if spent <= limit)


def _work(text_s: FloatArray, lengths: Lengths) -> float:
    return float((text_s * lengths.shares).sum())


def _plan(fit: CostFit, lengths: Lengths, bounds: Bounds) -> _Plan:
    budget = choose_budget(fit, lengths, bounds)
    text_s = seconds_per_text(
        fit,
        lengths.tokens,
        max_batch_tokens=budget,
        max_batch_requests=bounds.max_batch_rows,
    )
    cut = choose_cut(text_s, lengths, max_seq_len=bounds.max_seq_len)
    is_short = lengths.tokens <= cut
    short_s = float((text_s * lengths.shares)[is_short].sum())
    long_s = float((text_s * lengths.shares)[~is_short].sum())
    # No lane can be busy all the time and more; nor can the CPUs, if both lanes' threads
    # together are more than there are.
    busiest = max(short_s, long_s, (short_s + long_s) * fit.threads / bounds.cpus)
    alone_s = float((fit.seconds(1, lengths.tokens) * lengths.shares).sum())
    return _Plan(
        fit=fit,
        budget=budget,
        cut=cut,
        short_s=short_s,
        long_s=long_s,
        texts_per_s=1.0 / busiest,
        alone_s=alone_s,
    )


def _reasons(
    plan: _Plan, plans: Sequence[_Plan], *, rows: int, lengths: Lengths, bounds: Bounds
) -> Reasons:
    rates = ", ".join(f"{each.texts_per_s:.3g} with {each.fit.threads}" for each in plans)
    share = plan.short_s / (plan.short_s + plan.long_s)
    cut = (
        f"the short lane then does {share:.0%} of the work, the long lane {1 - share:.0%}; "
        "no other cut leaves the busier one less"
    )
    if plan.short_s == 0.0 or plan.long_s == 0.0:
        cut = (
            "the texts' lengths cannot be parted: one lane gets them all, so give it more "
            "replicas (short_replicas, long_replicas)"
        )
    return Reasons(
        threads_per_replica=(
            f"texts/s that a short and a long lane bear together on {bounds.cpus} CPUs, by "
            f"threads of each: {rates}; of those within {CLOSE:.0%} of the best the one that "
            "answers a text alone soonest"
        ),
        short_max_tokens=cut,
        max_batch_tokens=(
            f"smallest budget within {CLOSE:.0%} of the most tokens per second for these lengths; "
            f"none under max_seq_len {bounds.max_seq_len} may be taken"
        ),
        max_batch_requests=(
            f"fewest texts among which like ones fill batches within {_CLOSE_ROWS:.0%} of the "
            f"cheapest; the bundle allows {bounds.max_batch_rows}"
        ),
    )
