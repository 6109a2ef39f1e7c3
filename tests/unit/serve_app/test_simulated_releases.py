"""Two hundred releases of each kind; a thousand, and their traffic: tests/perf."""

from dataclasses import replace

import numpy as np
import pytest
from release_reports import START, fresh_evidence, quick_plan, report, running_state
from simulated_releases import (
    World,
    draw_tail,
    judge_p99,
    judge_rise,
    judge_share,
    simulate_step,
    tail_edges,
    worlds,
)

from serve_app.release.always_valid import RARE
from serve_app.release.check_result import Verdict
from serve_app.release.checks import run_checks
from serve_app.release.tallies import ComparisonTally, LaneTally

pytestmark = pytest.mark.slow

NUM_RELEASES = 200
HOURLY = {"look_every_s": 3600.0}


def rolled_back(world, *, step=0, seed=0):
    rng = np.random.default_rng([seed, step])
    outcome = simulate_step(world, step=step, num_releases=NUM_RELEASES, rng=rng)
    return outcome, (outcome.failed_look >= 0).mean()


def test_an_identical_candidate_is_rolled_back_in_at_most_2_of_100_releases():
    shares = [rolled_back(World(**HOURLY), step=step)[1] for step in range(4)]

    assert 1.0 - np.prod([1.0 - share for share in shares]) <= 0.02


def test_an_identical_candidate_need_not_wait_longer_than_the_first_day():
    outcome, _ = rolled_back(World(**HOURLY), seed=1)

    assert outcome.is_passed.mean() >= 0.95


@pytest.mark.parametrize(
    ("name", "checks"),
    [
        ("+20 % P99, all times", {"typical", "p99"}),
        ("+20 % P99, the slowest 5 %", {"p99"}),
        ("+1 % errors", {"errors", "shadow_errors"}),
        ("3 % flips", {"flips"}),
    ],
)
def test_a_worse_candidate_is_rolled_back_in_the_first_step_for_the_right_reason(name, checks):
    outcome, share = rolled_back(replace(worlds()[name], **HOURLY), seed=2)

    assert share >= 0.95
    assert {check.partition(".")[0] for check in outcome.failed_check if check} <= checks


def verdict_of(fails, passes):
    return {(True, False): Verdict.FAIL, (False, True): Verdict.PASS}.get(
        (bool(fails), bool(passes)), Verdict.INCONCLUSIVE
    )


def desk_verdicts(plan, fill):
    """Return what ``run_checks`` says of evidence that ``fill`` filled."""
    evidence = fresh_evidence(running_state(plan))
    evidence.add(report(1), at=START + 1)
    fill(evidence)
    return {one.name: one.verdict for one in run_checks(plan, evidence, now=START + 2)}


def test_the_arrays_judge_counts_as_the_desk_does():
    plan, rng = quick_plan(), np.random.default_rng(5)
    found = set()
    for _ in range(60):
        requests = rng.integers(100, 30_000, 2)
        errors = rng.binomial(requests, rng.choice([0.001, 0.006, 0.02], 2))
        compared = int(rng.integers(100, 5_000))
        flips = int(rng.binomial(compared, rng.choice([0.0, 0.005, 0.02])))

        def fill(evidence, requests=requests, errors=errors, compared=compared, flips=flips):
            for role, of, bad in zip(("candidate", "stable"), requests, errors, strict=True):
                tally = LaneTally(num_requests=int(of), num_errors=int(bad))
                evidence.lanes[role]["short"] = tally
            tally = ComparisonTally(num_comparisons=compared, num_flips=flips)
            evidence.comparisons["all"] = {"all": tally}

        samples = [(errors[index], requests[index]) for index in (0, 1)]
        rise = judge_rise(plan, samples, 0.005, plan.min_samples.requests)
        share = judge_share(plan, flips, compared, 0.005, RARE, plan.min_samples.comparisons)
        verdicts = desk_verdicts(plan, fill)
        assert verdicts["errors"] is verdict_of(*rise)
        assert verdicts["flips"] is verdict_of(*share)
        found |= {(name, verdicts[name]) for name in ("errors", "flips")}
    assert len(found) == 6


@pytest.mark.parametrize("slower", [1.0, 1.1, 1.3])
def test_the_arrays_judge_p99_as_the_desk_does(slower):
    plan = quick_plan()
    world = World(plan=plan, slower=slower)
    counts = [np.array([[60_000]]), np.array([[20_000]])]
    edges = tail_edges(world)
    fails, passes = judge_p99(world, counts, np.random.default_rng(6))
    rng = np.random.default_rng(6)
    tails = [
        draw_tail(rng, requests, edges, slower=ratio, is_tail_only=False)[0, 0]
        for requests, ratio in zip(counts, (1.0, slower), strict=True)
    ]
    middles = np.exp([edges[0] - 0.005, *(edges[:-1] + 0.005), edges[-1] + 0.005])

    def fill(evidence):
        for role, tail in zip(("stable", "candidate"), tails, strict=True):
            tally = LaneTally(num_requests=int(tail[-1]))
            in_class = np.diff(tail, prepend=0)
            tally.times.add(np.repeat(middles, in_class).tolist())
            evidence.lanes[role]["short"] = tally

    assert desk_verdicts(plan, fill)["p99.short"] is verdict_of(fails[0, 0], passes[0, 0])
