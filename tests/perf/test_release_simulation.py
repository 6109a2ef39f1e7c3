"""How often a release is rolled back, rightly and wrongly, and the traffic that it takes.

    pytest -m perf -s tests/perf/test_release_simulation.py

A thousand releases of each kind at 20 requests/s; the figures stand in RESULTS.md. The small,
seeded sibling that runs with the unit tests is tests/unit/serve_app/test_simulated_releases.py.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from simulated_releases import World, simulate_step, worlds

from serve_app.release.plan import ReleasePlan, Step
from serve_app.release.split import key_point

pytestmark = pytest.mark.perf
NUM_RELEASES = 1_000
MOST_FALSE, LEAST_RIGHT = 0.02, 0.95


def describe(name: str, outcome) -> float:
    found = outcome.failed_look >= 0
    share = float(found.mean())
    checks = Counter(check.partition(".")[0] for check in outcome.failed_check if check)
    used = outcome.candidate_requests
    hours = outcome.seconds / 3600
    print(
        f"{name:32s} rolled back {share:7.2%}  passes {outcome.is_passed.mean():6.1%}  "
        f"candidate's requests median {np.median(used):8,.0f} "
        f"P95 {np.quantile(used, 0.95):8,.0f} "
        f"all {np.median(outcome.all_requests):11,.0f}  "
        f"hours {np.median(hours):5.2f} P95 {np.quantile(hours, 0.95):5.2f}  {dict(checks)}"
    )
    return share


def run(name: str, world: World, *, step: int = 0, num_releases: int = NUM_RELEASES) -> float:
    rng = np.random.default_rng([sum(name.encode()), step])
    outcome = simulate_step(world, step=step, num_releases=num_releases, rng=rng)
    return describe(f"{name}, step {step + 1}", outcome)


def test_an_identical_candidate_keeps_its_traffic_through_all_four_steps():
    steps = [run("identical", World(), step=step) for step in range(4)]

    assert 1.0 - np.prod([1.0 - share for share in steps]) <= MOST_FALSE


@pytest.mark.parametrize("name", [name for name in worlds() if name != "identical"])
def test_a_worse_candidate_is_rolled_back_within_the_first_step(name):
    assert run(name, worlds()[name]) >= LEAST_RIGHT


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("at the limit of errors", World(errors=(0.002, 0.007))),
        ("at the limit of flips", World(flips=0.005)),
        ("at the limit of P99 and typical", World(slower=1.1)),
    ],
)
def test_a_candidate_at_its_threshold_is_rolled_back_as_rarely_as_is_stated(name, world):
    assert run(name, world) <= world.plan.confidence.false_rollback


def test_looking_each_second_changes_nothing():
    plan = ReleasePlan(steps=(Step(weight=0.05, dwell_s=1_200.0), Step(weight=1.0)), settle_s=0.0)
    world = World(plan=plan, requests_per_s=400.0, look_every_s=1.0)

    assert run("identical, looks each second", world, num_releases=200) <= MOST_FALSE


@pytest.mark.parametrize("rate", [2.0, 200.0])
def test_other_traffic(rate):
    for name, world in worlds().items():
        share = run(f"{name}, {rate:g}/s", replace(world, requests_per_s=rate), num_releases=200)
        assert share <= MOST_FALSE if name == "identical" else share >= 0.0


def test_what_an_ordinary_test_at_every_look_would_do():
    """The z-test for two shares at p < 0.05, one-sided, each five minutes of the first day."""
    rng = np.random.default_rng(11)
    shape = (NUM_RELEASES, 287)
    requests = [rng.poisson(6_000 * share, shape).cumsum(axis=1) for share in (0.95, 0.05)]
    steps = [np.diff(one, axis=1, prepend=0) for one in requests]
    errors = [rng.binomial(one, 0.002).cumsum(axis=1) for one in steps]
    shares = [bad / of for bad, of in zip(errors, requests, strict=True)]
    pooled = sum(errors) / sum(requests)
    spread = np.sqrt(pooled * (1 - pooled) * (1 / requests[0] + 1 / requests[1]))
    is_enough = requests[1] >= ReleasePlan().min_samples.requests
    fails = ((shares[1] - shares[0]) / spread > 1.645) & is_enough
    share = fails.any(axis=1).mean()
    print(f"identical, z-test at each look: rolled back {share:.1%}")

    assert share > MOST_FALSE


def test_the_split_over_many_salts():
    keys = [f"user-{number}" for number in range(20_000)]
    shares = [np.mean([key_point(f"r{salt}", key) < 0.05 for key in keys]) for salt in range(100)]
    print(f"split of 20,000 keys: {np.min(shares):.4f} to {np.max(shares):.4f} over 100 salts")

    assert abs(np.array(shares) - 0.05).max() <= 0.005
