"""A thousand releases at once: the checks of serve_app/release over Poisson traffic, in arrays.

Every look is judged by the functions that the desk calls (``share_bounds``, ``rank_bounds``) with
the plan's thresholds and levels; only the counting is done for all releases together. What the
counts of one release lead to is compared with ``run_checks`` in tests/unit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from serve_app.release.always_valid import EVEN, HALF, RARE, rank_bounds, share_bounds
from serve_app.release.checks import P99, check_levels
from serve_app.release.plan import ReleasePlan

NORMAL = NormalDist()
LANE_SHARES = {"short": 0.7, "long": 0.3}
MEDIAN_MS = 30.0
SIGMA = 0.5
"""Times are log-normal: P99 is 3.2 medians."""
TAIL_FROM = 0.95
_BIN = np.log(1.01)


@dataclass(frozen=True, kw_only=True)
class World:
    """The traffic, and how the candidate differs."""

    plan: ReleasePlan = field(default_factory=ReleasePlan)
    requests_per_s: float = 20.0
    look_every_s: float = 300.0
    errors: tuple[float, float] = (0.002, 0.002)
    """Share that fails: stable, candidate."""
    flips: float = 0.0005
    """Of an identical model: texts so close that their batch decides."""
    slower: float = 1.0
    """The candidate's times by stable's…"""
    is_tail_only: bool = False
    """…all of them, or those over P95."""
    wrong: tuple[float, float] = (0.1, 0.1)
    """Answers that users call wrong: stable, candidate."""
    labels_per_request: float = 0.001
    """Requests with feedback."""


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """What a step led to, for every release."""

    failed_look: np.ndarray
    """``int [releases]``: the first look with a failed check, -1 for none."""
    failed_check: list[str]
    """The check that failed first; empty for none."""
    candidate_requests: np.ndarray
    """Up to the failing look, or of the whole step."""
    all_requests: np.ndarray
    seconds: np.ndarray
    is_passed: np.ndarray
    """``bool [releases]``: every required check passes at the end of the dwell."""


@dataclass(kw_only=True)
class _Arm:
    """Running totals ``[releases, looks]``."""

    requests: dict[str, np.ndarray]
    errors: np.ndarray


def simulate_step(
    world: World, *, step: int, num_releases: int, rng: np.random.Generator, chunk: int = 50
) -> StepOutcome:
    """Run one step of the plan for many releases, each with traffic of its own."""
    parts = [
        _simulate(world, step=step, num_releases=min(chunk, num_releases - start), rng=rng)
        for start in range(0, num_releases, chunk)
    ]
    return StepOutcome(
        failed_check=[name for part in parts for name in part.failed_check],
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in (
                "failed_look",
                "candidate_requests",
                "all_requests",
                "seconds",
                "is_passed",
            )
        },
    )


def _simulate(
    world: World, *, step: int, num_releases: int, rng: np.random.Generator
) -> StepOutcome:
    weight, dwell = world.plan.steps[step].weight, world.plan.steps[step].dwell_s
    looks = round((dwell - world.plan.settle_s) // world.look_every_s)
    shape = (num_releases, looks)
    # Beyond one half the checks compare with stable's requests of the first step.
    stable_weight = 1.0 - (weight if weight <= 0.5 else world.plan.steps[0].weight)
    per_look = world.requests_per_s * world.look_every_s
    arms = [
        _draw_arm(rng, shape, mean=per_look * share, error=error)
        for share, error in zip((stable_weight, weight), world.errors, strict=True)
    ]
    verdicts = dict(_judge_all(world, arms, weight=weight, per_look=per_look, rng=rng))
    failed = {name: fails for name, (fails, _, _) in verdicts.items()}
    first, names = _first_failures(failed, shape)
    last = np.where(first < 0, looks - 1, first)
    rows = np.arange(num_releases)
    totals = [sum(arm.requests.values())[rows, last] for arm in arms]
    passed = [passes[:, -1] for _, passes, is_required in verdicts.values() if is_required]
    return StepOutcome(
        failed_look=first,
        failed_check=names,
        candidate_requests=totals[1],
        all_requests=totals[0] + totals[1],
        seconds=(last + 1) * world.look_every_s + world.plan.settle_s,
        is_passed=np.all(passed, axis=0),
    )


def _judge_all(
    world: World, arms: list[_Arm], *, weight: float, per_look: float, rng: np.random.Generator
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray, bool]]]:
    plan, shape = world.plan, arms[0].errors.shape
    thresholds, least = plan.thresholds, plan.min_samples
    stable, candidate = arms
    pair = [(arm.errors, sum(arm.requests.values())) for arm in (candidate, stable)]
    yield "errors", (*judge_rise(plan, pair, thresholds.max_error_rise, least.requests), True)
    shadowed = min(plan.shadow.share * per_look, plan.shadow.texts_per_s * world.look_every_s)
    compared = _running(rng.poisson(shadowed, shape))
    failures = _running(rng.poisson(shadowed * world.errors[1], shape))
    failures = np.minimum(failures, compared)
    pair = [(failures, compared), pair[1]]
    yield (
        "shadow_errors",
        (*judge_rise(plan, pair, thresholds.max_error_rise, least.comparisons), True),
    )
    flips = np.minimum(_running(rng.poisson(shadowed * world.flips, shape)), compared - failures)
    yield (
        "flips",
        (*judge_share(plan, flips, compared - failures, thresholds.max_flip_rate, RARE), True),
    )
    labelled = []
    for arm, wrong in zip((candidate, stable), world.wrong[::-1], strict=True):
        steps = np.diff(sum(arm.requests.values()), axis=1, prepend=0)
        given = rng.binomial(steps, world.labels_per_request)
        labelled.append((_running(rng.binomial(given, wrong)), _running(given)))
    rise = judge_rise(plan, labelled, thresholds.max_accuracy_drop, least.feedback, mixture=EVEN)
    yield "accuracy", (*rise, False)
    for lane in LANE_SHARES:
        counts = [arm.requests[lane] for arm in arms]
        yield f"p99.{lane}", (*judge_p99(world, counts, rng), True)
        if weight <= 0.5:
            slower = _pair_probability(world)
            steps = np.diff(counts[1], axis=1, prepend=0)
            hits = _running(rng.binomial(steps, slower))
            yield f"typical.{lane}", (*judge_share(plan, hits, counts[1], 0.5, HALF), True)


def judge_rise(plan, samples, threshold, least, *, mixture=RARE):
    """Return where a rise of shares fails and where it passes; samples are candidate, stable."""
    levels = check_levels(plan)
    found = []
    for level in levels.per_arm():
        (low_c, high_c), (low_s, high_s) = (
            share_bounds(hits, trials, alpha=level, mixture=mixture) for hits, trials in samples
        )
        found.append((low_c - high_s, high_c - low_s))
    is_enough = (samples[0][1] >= least) & (samples[1][1] >= 1)
    return (found[0][0] > threshold) & is_enough, (found[1][1] <= threshold) & is_enough


def judge_share(plan, hits, trials, threshold, mixture, least=None):
    """Return where a share fails and where it passes."""
    levels = check_levels(plan)
    least = plan.min_samples.times if least is None else least
    low, _ = share_bounds(hits, trials, alpha=levels.fail, mixture=mixture)
    _, high = share_bounds(hits, trials, alpha=levels.passing, mixture=mixture)
    is_enough = trials >= least
    return (low > threshold) & is_enough, (high <= threshold) & is_enough


def judge_p99(world: World, counts: list[np.ndarray], rng: np.random.Generator):
    """Return where P99 fails and passes; counts are stable's and the candidate's requests."""
    plan = world.plan
    levels, ratio = check_levels(plan), plan.thresholds.max_p99_ratio
    edges = tail_edges(world)
    tails = [
        draw_tail(rng, requests, edges, slower=slower, is_tail_only=world.is_tail_only)
        for requests, slower in zip(counts, (1.0, world.slower), strict=True)
    ]
    found = []
    for level in levels.per_arm():
        ends = []
        for requests, cumulated in zip(counts, tails, strict=True):
            least, most = rank_bounds(requests, share=P99, alpha=level)
            ends.append((_edge(cumulated, least, edges, 0), _edge(cumulated, most + 1, edges, 1)))
        (low_s, high_s), (low_c, high_c) = ends
        found.append((low_c / high_s, high_c / low_s))
    is_enough = counts[1] >= plan.min_samples.times
    return (found[0][0] > ratio) & is_enough, (found[1][1] <= ratio) & is_enough


def tail_edges(world: World) -> np.ndarray:
    low = np.log(MEDIAN_MS) + SIGMA * NORMAL.inv_cdf(0.94)
    high = np.log(MEDIAN_MS) + SIGMA * NORMAL.inv_cdf(0.9999) + np.log(max(1.0, world.slower))
    return np.arange(np.floor(low / _BIN), np.ceil(high / _BIN) + 1) * _BIN


def draw_tail(rng, requests, edges, *, slower: float, is_tail_only: bool) -> np.ndarray:
    """Return running counts at or under each class of time, ``[releases, looks, classes]``."""
    log_times = np.asarray(edges)
    shifted = log_times - np.log(slower)
    if is_tail_only:
        tail = np.log(MEDIAN_MS) + SIGMA * NORMAL.inv_cdf(TAIL_FROM)
        # Times over P95 are stretched, so none lies between P95 and the stretched P95.
        shifted = np.where(log_times < tail, log_times, np.maximum(shifted, tail))
    below = np.array([NORMAL.cdf((one - np.log(MEDIAN_MS)) / SIGMA) for one in shifted])
    shares = np.diff(below, prepend=0.0, append=1.0)
    steps = np.diff(requests, axis=1, prepend=0)
    drawn = rng.multinomial(steps, shares / shares.sum())
    return drawn.cumsum(axis=1).cumsum(axis=2)


def _edge(cumulated, ranks, edges, which: int) -> np.ndarray:
    """Return the lower (0) or upper (1) end of the class that holds the sample of a rank."""
    index = (cumulated < ranks[:, :, None]).sum(axis=2)
    ends = np.concatenate([[0.0], np.exp(edges), [np.inf]])
    found = ends[np.minimum(index + which, len(ends) - 1)]
    is_bounded = ranks >= 1 if which == 0 else ranks <= cumulated[:, :, -1]
    return np.where(is_bounded, np.maximum(found, 1e-9), 1e-9 if which == 0 else np.inf)


def _pair_probability(world: World) -> float:
    """Return the chance that a candidate's time is over the threshold times a stable one."""
    ratio = world.plan.thresholds.max_typical_ratio
    slower = 1.0 if world.is_tail_only else world.slower
    return NORMAL.cdf(np.log(slower / ratio) / (SIGMA * np.sqrt(2.0)))


def _draw_arm(rng, shape, *, mean: float, error: float) -> _Arm:
    requests = {lane: rng.poisson(mean * share, shape) for lane, share in LANE_SHARES.items()}
    errors = rng.binomial(sum(requests.values()), error)
    return _Arm(
        requests={lane: _running(drawn) for lane, drawn in requests.items()},
        errors=_running(errors),
    )


def _running(drawn: np.ndarray) -> np.ndarray:
    return np.cumsum(drawn, axis=1)


def _first_failures(failed, shape) -> tuple[np.ndarray, list[str]]:
    first, names = np.full(shape[0], -1), [""] * shape[0]
    for name, fails in failed.items():
        looks = np.where(fails.any(axis=1), fails.argmax(axis=1), -1)
        for row in np.flatnonzero(looks >= 0):
            if first[row] < 0 or looks[row] < first[row]:
                first[row], names[row] = looks[row], name
    return first, names


def worlds() -> dict[str, World]:
    """Return the candidates that the release must tell apart."""
    same = World()
    return {
        "identical": same,
        "+20 % P99, all times": replace(same, slower=1.2),
        "+20 % P99, the slowest 5 %": replace(same, slower=1.2, is_tail_only=True),
        "+1 % errors": replace(same, errors=(0.002, 0.012)),
        "3 % flips": replace(same, flips=0.03),
    }
