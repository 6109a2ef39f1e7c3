"""How many threads a replica has where nobody says."""

import pytest
from bundles import write_tiny_bundle
from hypothesis import given
from hypothesis import strategies as st

from serve_app.config import ServeSettings
from serve_app.limits import default_threads, resolve_limits


def settings_of(**fields):
    return ServeSettings(bundle="b", **fields)


@pytest.mark.parametrize(
    ("cpus", "threads"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 3), (8, 4), (64, 4)]
)
def test_one_replica_of_each_lane_takes_its_share_of_the_machine(cpus, threads):
    assert default_threads(settings_of(), cpus=cpus) == threads


@pytest.mark.parametrize(("replicas", "threads"), [(1, 4), (3, 2), ([1, 3], 2), (8, 1), (40, 1)])
def test_more_replicas_have_fewer_threads_each(replicas, threads):
    settings = settings_of(short_replicas=replicas)

    assert default_threads(settings, cpus=8) == threads


def test_a_replica_that_reserves_cpus_has_as_many_threads():
    assert default_threads(settings_of(lane_num_cpus=6.0), cpus=2) == 6
    assert default_threads(settings_of(lane_num_cpus=1.5), cpus=16) == 1


@pytest.mark.parametrize(
    ("fields", "short"),
    [
        ({}, 2),
        ({"short_concurrent_runs": 3}, 3),
        ({"device": "cuda", "lane_num_gpus": 0.5}, 1),
        ({"device": "cuda", "lane_num_gpus": 0.5, "short_concurrent_runs": 2}, 2),
    ],
)
def test_a_short_lane_has_two_runs_at_once_on_a_cpu_and_a_long_one_never(fields, short):
    settings = settings_of(**fields)

    assert (settings.concurrent_runs("short"), settings.concurrent_runs("long")) == (short, 1)


@given(st.integers(1, 256), st.integers(1, 32), st.integers(1, 32))
def test_threads_of_all_replicas_never_pass_the_cpus_that_are_there(cpus, short, long):
    settings = settings_of(short_replicas=short, long_replicas=long)

    threads = default_threads(settings, cpus=cpus)

    assert 1 <= threads <= 4
    assert threads * (short + long) <= max(cpus, short + long)


def test_what_is_set_beats_the_share(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "bundle")

    share = resolve_limits(settings_of(), bundle, cpus=8)
    set_to = resolve_limits(settings_of(threads_per_replica=7), bundle, cpus=8)

    assert (share.threads_per_replica, set_to.threads_per_replica) == (4, 7)
