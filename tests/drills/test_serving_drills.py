"""A service over two hosts goes on when one of them or the head is lost."""

import json
import os
import signal
import time

import pytest
import yaml
from bundles import Variant, write_tiny_bundle
from clients import Crowd
from network import SUBNET
from nodes import cluster, wait_for
from redis_server import redis, why_no_redis
from service import (
    DEPLOYMENTS,
    Losses,
    deploy,
    release,
    replicas,
    serving_settings,
    url_of,
    wait_for_clean,
    wait_until_ready,
)

pytestmark = [pytest.mark.ray, pytest.mark.drill]

NUM_CLIENTS = 16
CUT_S = 30.0
HEADLESS_S = 15.0
# Nothing that a check sees in the drill's tiny models may end the release.
HELD_PLAN = {
    "steps": [{"weight": 0.3, "dwell_s": 3600}, {"weight": 1.0, "dwell_s": 3600}],
    "thresholds": {"max_error_rise": 0.9, "max_p99_ratio": 100.0, "max_typical_ratio": 100.0},
}


def start_service(nodes, folder, hosts, *, head):
    """Start a head without work and two hosts with a front door and a replica of each kind."""
    bundle = write_tiny_bundle(folder / "bundle").folder
    nodes.add(cpus=0, host=hosts[0], is_head=True, **head)
    for host in hosts[1:]:
        nodes.add(cpus=4, host=host)
    on_each = [{"name": name, "max_replicas_per_node": 1} for name in DEPLOYMENTS]
    both = dict.fromkeys(("ingress_replicas", "short_replicas", "long_replicas"), 2)
    deploy(nodes, folder, deployments=on_each, bundle=str(bundle), **both)
    for node in nodes.nodes[1:]:
        wait_until_ready(node)
        assert [len(replicas(node, name)) for name in DEPLOYMENTS] == [1, 1, 1]


def test_a_host_cut_off_and_one_that_dies_cost_no_more_than_what_they_had_in_hand(hosts, tmp_path):
    with cluster(**serving_settings()) as nodes:
        start_service(nodes, tmp_path, hosts, head={"options": ()})
        _, stays, goes = nodes.nodes
        with Crowd(url_of(stays), num_clients=NUM_CLIENTS) as crowd:
            wait_for_clean(crowd, for_s=3.0)
            goes.host.cut_off()
            cut_s = time.monotonic()
            time.sleep(CUT_S)
            goes.host.join_again()
            wait_for_clean(crowd, for_s=10.0)
        wait_until_ready(goes)
        of_cut = Losses(crowd, since_s=cut_s)
        with Crowd(url_of(stays), num_clients=NUM_CLIENTS) as crowd:
            wait_for_clean(crowd, for_s=3.0)
            goes.kill()
            killed_s = time.monotonic()
            wait_for_clean(crowd, for_s=15.0)
        of_kill = Losses(crowd, since_s=killed_s)

    print(f"host cut off for {CUT_S:.0f} s: {of_cut}\nhost killed: {of_kill}")
    for seen in (of_cut, of_kill):
        # Each client has one request in hand; one asked later is not lost.
        assert seen.num_failed <= NUM_CLIENTS
        assert seen.clean_after_s < 2.0
        assert seen.longest_gap_s < 5.0
        assert seen.num_wrong == 0


def test_service_goes_on_without_its_head_and_the_next_head_finds_all_of_it(hosts, tmp_path):
    reason = why_no_redis()
    if reason:
        pytest.skip(reason)
    with (
        redis(f"{SUBNET}.1", tmp_path) as (address, password),
        cluster(**serving_settings()) as nodes,
    ):
        head = {"options": [f"--redis-password={password}"], "RAY_REDIS_ADDRESS": address}
        start_service(nodes, tmp_path, hosts, head=head)
        first, *others = nodes.nodes
        (desks,) = (node for node in others if replicas(node, "ReleaseDesk"))
        start_release(desks, tmp_path)
        with Crowd(url_of(others[0]), num_clients=NUM_CLIENTS) as crowd:
            wait_for_clean(crowd, for_s=3.0)
            before = what_is_released(desks)
            first.kill()
            killed_s = time.monotonic()
            time.sleep(HEADLESS_S)
            nodes.add(cpus=0, host=hosts[0], is_head=True, **head)
            started_s = time.monotonic()
            wait_for(lambda: nodes.head.pids_of("ray::ServeController"), within_s=90)
            back_s = time.monotonic() - started_s
            replaced_s = lose_a_lane(others[1])
            wait_for_clean(crowd, for_s=10.0)
            after = what_is_released(desks)
        seen = Losses(crowd, since_s=killed_s)

    print(
        f"head killed, the next one runs after {started_s - killed_s:.1f} s, Serve's controller "
        f"{back_s:.1f} s later, then a lost lane was replaced in {replaced_s:.1f} s: {seen}"
    )
    assert before == after
    assert after["state"] == "running"
    assert seen.num_failed == 0
    assert seen.longest_gap_s < 5.0


def start_release(node, folder):
    candidate = write_tiny_bundle(folder / "candidate", variant=Variant(weight=4.2)).folder
    plan = folder / "plan.yaml"
    plan.write_text(yaml.safe_dump(HELD_PLAN))
    release(node, "start", str(candidate), "--plan", str(plan))
    wait_for(lambda: what_is_released(node)["state"] == "running", within_s=90)


def what_is_released(node):
    status = json.loads(release(node, "status", "--json"))
    return {name: status[name] for name in ("state", "release_id", "stable", "candidate", "weight")}


def lose_a_lane(node):
    """Kill a lane's replica; return the seconds until Serve's controller has another one there."""
    (pid,) = replicas(node, "ShortLane")
    os.kill(pid, signal.SIGKILL)
    began_s = time.monotonic()
    wait_for(lambda: set(replicas(node, "ShortLane")) - {pid}, within_s=60)
    return time.monotonic() - began_s
