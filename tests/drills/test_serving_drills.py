"""A service over two hosts goes on when the network or the power of one of them fails."""

import time

import pytest
from bundles import write_tiny_bundle
from clients import Crowd
from nodes import cluster, wait_for
from service import (
    DEPLOYMENTS,
    deploy,
    losses,
    replicas,
    serving_settings,
    url_of,
    wait_for_clean,
    wait_until_ready,
)

pytestmark = [pytest.mark.ray, pytest.mark.drill]

CUT_S = 30.0


@pytest.fixture
def service(hosts, tmp_path):
    """A head without work and two hosts, each with a front door and a replica of each kind."""
    bundle = write_tiny_bundle(tmp_path / "bundle").folder
    with cluster(**serving_settings()) as nodes:
        nodes.add(cpus=0, host=hosts[0], is_head=True)
        for host in hosts[1:]:
            nodes.add(cpus=2, host=host)
        on_each = [{"name": name, "max_replicas_per_node": 1} for name in DEPLOYMENTS]
        both = dict.fromkeys(("ingress_replicas", "short_replicas", "long_replicas"), 2)
        deploy(nodes, tmp_path, deployments=on_each, bundle=str(bundle), **both)
        for node in nodes.nodes[1:]:
            wait_until_ready(node)
        yield nodes


def counts(node):
    return [len(replicas(node, name)) for name in DEPLOYMENTS]


def say(what, seen):
    print(
        f"{what}: {seen.num_answered} requests answered, {seen.num_failed} failed "
        f"{dict(seen.outcomes)}, clean after {seen.clean_after_s:.1f} s, longest gap "
        f"{seen.longest_gap_s:.1f} s"
    )


def test_a_host_without_network_for_30_s_and_one_that_dies_cost_only_what_they_had_in_hand(service):
    _, stays, goes = service.nodes
    assert counts(stays) == counts(goes) == [1, 1, 1]

    with Crowd(url_of(stays), num_clients=8) as crowd:
        wait_for_clean(crowd, for_s=3.0, within_s=60)
        goes.host.cut_off()
        cut_s = time.monotonic()
        time.sleep(CUT_S)
        goes.host.join_again()
        joined_s = time.monotonic()
        wait_for_clean(crowd, for_s=15.0, within_s=120)
        print(counts(stays), counts(goes), time.monotonic() - joined_s)
        cut_seen = list(crowd.seen)
    import json, collections
    b=collections.defaultdict(collections.Counter)
    for one in cut_seen: b[int(one.asked_s-cut_s)][one.outcome if one.is_right else f"bad{one.outcome}"]+=1
    for k in sorted(b): print(k, dict(b[k]))
    for one in cut_seen:
        if not one.is_right: print(one)
    say("host cut off", losses(cut_seen, since_s=cut_s))

    with Crowd(url_of(stays), num_clients=8) as crowd:
        wait_for_clean(crowd, for_s=3.0, within_s=60)
        goes.kill()
        killed_s = time.monotonic()
        wait_for_clean(crowd, for_s=15.0, within_s=120)
    b=collections.defaultdict(collections.Counter)
    for one in crowd.seen: b[int(one.asked_s-killed_s)][one.outcome if one.is_right else f"bad{one.outcome}"]+=1
    for k in sorted(b): print(k, dict(b[k]))
    say("host killed", losses(crowd.seen, since_s=killed_s))
