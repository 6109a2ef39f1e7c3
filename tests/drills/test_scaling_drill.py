"""A lane grows under load and shrinks after it, nodes follow, and no request is lost."""

import threading
import time
from collections import Counter
from http import HTTPStatus

import httpx
import pytest
import yaml
from bundles import Variant, write_tiny_bundle
from clients import Crowd
from nodes import ROOT, cluster, wait_for
from scaling_picture import Sample, draw
from service import deploy, serving_settings, url_of, wait_until_ready

pytestmark = [pytest.mark.ray, pytest.mark.drill]

MOST = 3
PICTURE = ROOT / "outputs" / "drills" / "scaling.svg"
FAKE_NODES = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
# What Ray's own tests of its autoscaler start a head with.
HEAD_ID = "f" * 51 + "00000"
AS_FAKE = {
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
}


def write_autoscaler(path, gcs):
    """Write the file of Ray's autoscaler whose nodes are raylets on the head's own host."""
    node = {"resources": {"CPU": 2, "object_store_memory": 100 * 2**20}, "node_config": {}}
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    provider = {
        # Not "fake_multinode": the file of its defaults is missing in Ray's package.
        "type": "external",
        "module": FAKE_NODES,
        "disable_node_updaters": True,
        "gcs_address": gcs,
        "launch_multiple": True,
        "head_node_id": HEAD_ID,
    }
    commands = ("initialization", "setup", "head_setup", "worker_setup")
    commands = [f"{name}_commands" for name in (*commands, "head_start_ray", "worker_start_ray")]
    lists = (*commands, "cluster_synced_files", "rsync_exclude", "rsync_filter")
    config = {
        "cluster_name": "drill",
        "max_workers": MOST + 1,
        "provider": provider,
        "available_node_types": {
            "worker": {**node, "min_workers": 0, "max_workers": MOST + 1},
            "ray.head.default": head,
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.1,
        "file_mounts_sync_continuously": False,
        # All of these must be there, though nothing uses them.
        **{name: [] for name in lists},
        **{name: {} for name in ("auth", "docker", "file_mounts")},
    }
    path.write_text(yaml.safe_dump(config))


class Watch(threading.Thread):
    """Counts replicas and nodes and asks for one answer, several times a second."""

    def __init__(self, head):
        super().__init__()
        self.samples, self.outcomes = [], Counter()
        self._head = head
        self._is_over = threading.Event()
        self._began_s = time.monotonic()

    def passed_s(self):
        return time.monotonic() - self._began_s

    def run(self):
        while not self._is_over.wait(0.2):
            answer = httpx.post(
                f"{url_of(self._head)}/v1/predict", json={"text": "good"}, timeout=60
            )
            self.outcomes[answer.status_code] += 1
            self.samples.append(
                Sample(
                    at_s=self.passed_s(),
                    num_replicas=len(self._head.pids_of("ray::ServeReplica:textlane:ShortLane")),
                    num_nodes=len(self._head.pids_of("raylet/raylet ")) - 1,
                )
            )

    def wait_for(self, what, *, within_s):
        """Return after how many seconds the last sample was as told."""
        return wait_for(
            lambda: self.samples and what(self.samples[-1]) and self.samples[-1].at_s,
            within_s=within_s,
            why=lambda: str(self.samples[-1]),
        )

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_error):
        self._is_over.set()
        self.join()


def test_lanes_and_nodes_follow_the_load_and_no_request_is_lost(hosts, tmp_path):
    bundle = write_tiny_bundle(tmp_path / "bundle", variant=Variant(num_slow=300)).folder
    with cluster(**serving_settings()) as nodes:
        config = tmp_path / "autoscaler.yaml"
        write_autoscaler(config, f"{hosts[0].address}:{nodes.port}")
        options = [f"--autoscaling-config={config}"]
        head = nodes.add(cpus=0, host=hosts[0], is_head=True, options=options, **AS_FAKE)
        deploy(
            nodes,
            tmp_path,
            proxies="HeadOnly",
            bundle=str(bundle),
            short_replicas=[1, MOST],
            lane_num_cpus=1.5,  # One on each node of two.
            short_max_tokens=15,
            max_batch_requests=4,
            scale_up_delay_s=3,
            scale_down_delay_s=10,
        )
        wait_until_ready(head)
        with Watch(head) as watch:
            time.sleep(15)  # Superfluous nodes of the start go.
            at_rest = watch.samples[-1]
            with Crowd(url_of(head), num_clients=64) as many:
                begins_s = watch.passed_s()
                grown_s = watch.wait_for(lambda now: now.num_replicas == MOST, within_s=90)
                time.sleep(10)
                top = watch.samples[-1]
            ends_s = watch.passed_s()
            shrunk_s = watch.wait_for(lambda now: now.num_replicas == 1, within_s=60)
            gone_s = watch.wait_for(lambda now: now.num_nodes <= at_rest.num_nodes, within_s=60)
            time.sleep(3)

    draw(watch.samples, PICTURE, load=(begins_s, ends_s))
    print(
        f"lane 1 → {top.num_replicas} in {grown_s - begins_s:.1f} s, nodes {at_rest.num_nodes} → "
        f"{top.num_nodes}; load ends, lane → 1 in {shrunk_s - ends_s:.1f} s, nodes → "
        f"{watch.samples[-1].num_nodes} in {gone_s - ends_s:.1f} s; requests "
        f"{watch.outcomes + many.outcomes()}; picture: {PICTURE}"
    )
    assert at_rest.num_replicas == 1
    assert top.num_nodes > at_rest.num_nodes
    assert set(watch.outcomes) == set(many.outcomes()) == {HTTPStatus.OK}
    assert many.wrong() == []
