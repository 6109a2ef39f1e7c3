"""Training goes on exactly over several nodes, over the loss of one and when one more comes."""

import time

import pytest
from killed_training import demand_equal, finish, learned, start_together
from nodes import cluster
from training import build_job, training

from pipeline.contract.shards import load_shards
from pipeline.train.history import read_history
from pipeline.train.resume_rules import open_run
from pipeline.train.run import plan_run

pytestmark = [pytest.mark.ray, pytest.mark.drill]

# Between processes on one machine gloo takes the name of the machine, which no cable leads to.
ON_HOSTS = {"GLOO_SOCKET_IFNAME": "eth0"}


def train_on_one_node(job, folder):
    """Train with two processes and no Ray; return what was learned."""
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    open_run(run, shards, force=False)
    for rank, process in enumerate(start_together(run, folder, world_size=2, moment=None)):
        finish(process, log=folder / f"{rank}.jsonl")
    return learned(job.checkpoint_dir)


@pytest.fixture
def on_one_node(tmp_path):
    """Return what one node learns, of the job that the others are compared with."""

    def learn(**train):
        job = build_job(tmp_path / "one_node", num_workers=2, **train)
        return train_on_one_node(job, tmp_path / "logs")

    return learn


def test_two_hosts_learn_what_one_node_learns(tmp_path, hosts, on_one_node):
    job = build_job(tmp_path / "two", num_workers=2, epochs=40)
    with cluster(**ON_HOSTS) as nodes:
        nodes.add(cpus=0, host=hosts[0], is_head=True)
        workers = [nodes.add(cpus=1, host=host) for host in hosts[1:]]
        with training(job, nodes) as run:
            began_s = time.monotonic()
            run.wait_for_step(1)
            at_work = [len(node.pids_of("RayTrainWorker")) for node in workers]
            run.finish()

    took_s = time.monotonic() - began_s
    print(f"two hosts: {len(read_history(job.checkpoint_dir))} steps, the command {took_s:.1f} s")
    assert at_work == [1, 1]
    demand_equal(learned(job.checkpoint_dir), on_one_node(epochs=40))


def test_node_killed_in_mid_step_changes_nothing_of_what_is_learned(tmp_path, on_one_node):
    settings = {"epochs": 400, "checkpoint_every_steps": 100}
    job = build_job(tmp_path / "two", num_workers=2, **settings)
    with cluster() as nodes:
        nodes.add(cpus=0, is_head=True)
        workers = [nodes.add(cpus=1) for _ in range(3)]
        with training(job, nodes) as run:
            run.wait_for_step(350)
            first = run.pid_of_first_rank()
            (lost,) = (node for node in workers if first in node.pids_of())
            lost.kill()
            killed_s, last_step = time.monotonic(), run.last_step()
            resumed = run.wait_for_event("resumed")
            found_s = time.monotonic() - killed_s
            run.wait_for_step(last_step)
            caught_up_s = time.monotonic() - killed_s
            run.finish()

    print(
        f"node killed after step {last_step}: {last_step - resumed.step} steps lost, resumed after "
        f"{found_s:.1f} s, further than before after {caught_up_s:.1f} s"
    )
    assert 0 <= last_step - resumed.step < 200
    assert [one.kind for one in run.events()] == ["resumed"]
    demand_equal(learned(job.checkpoint_dir), on_one_node(**settings))


def test_node_that_joins_is_taken_up_without_a_step_lost(tmp_path):
    job = build_job(
        tmp_path / "grown", num_workers=(1, 2), epochs=10**6, checkpoint_every_steps=10**9
    )
    with cluster() as nodes:
        nodes.add(cpus=0, is_head=True)
        nodes.add(cpus=1)
        with training(job, nodes) as run:
            run.wait_for_step(1)
            nodes.add(cpus=1)
            joined_s = time.monotonic()
            resumed = run.wait_for_event("resumed", within_s=110)
            resumed_s = time.monotonic() - joined_s
            run.wait_for_step(resumed.step + 100)
            at_work = [len(node.pids_of("RayTrainWorker")) for node in nodes.nodes]
            run.stop()
    left, resumed = run.events()[:2]

    print(
        f"node joined: taken up after {resumed_s:.1f} s, "
        f"{resumed.time_s - left.time_s:.1f} s of them without training; "
        f"{left.step - resumed.step} steps lost"
    )
    assert [left.kind, resumed.kind] == ["preempted", "resumed"]
    assert left.step == resumed.step
    assert at_work == [0, 1, 1]
