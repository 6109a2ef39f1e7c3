"""`textlane doctor` beside a real `textlane serve` that is badly set, and then cured."""

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from checkout import ROOT
from served import serving
from slow_bundle import write_slow_bundle

from cluster.doctor.discovery import DISCOVERY_NAME

pytestmark = [pytest.mark.ray, pytest.mark.drill]

# Ray's 10 s would make each look half a minute long.
OFTEN = {"RAY_metrics_report_interval_ms": "1000"}
BAD = ("--set", "threads_per_replica=8", "--set", "max_batch_requests=1", "--no-haproxy")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_slow_bundle(tmp_path_factory.mktemp("doctor") / "bundle").folder


@contextmanager
def under_load(url):
    """Ask without pause from 24 connections until the block ends."""
    load = [sys.executable, "-m", "serve_app", "load", url, "--connections", "24"]
    load += ["--mix", "1:5-10", "--warm-up-s", "0", "--seconds", "60"]
    process = subprocess.Popen(load, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        time.sleep(2)
        yield
    finally:
        process.terminate()
        process.wait()


def examine(server):
    """Return what doctor finds within 8 s, by symptom, and its exit status."""
    logs = Path(re.search(r"^logs: +(\S+)$", server.said, flags=re.M)[1])
    discovery = logs.parent.parent / DISCOVERY_NAME
    command = [sys.executable, "-m", "cluster", "doctor", "--discovery", str(discovery)]
    done = subprocess.run(
        [*command, "--seconds", "8", "--json"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    content = json.loads(done.stdout)
    assert content["notes"] == []
    assert done.returncode == (1 if content["findings"] else 0)
    print(done.stdout)
    return {finding["symptom"]: finding for finding in content["findings"]}


def deploy(server, **user_config):
    """Deploy the file that is served with other limits of the lanes, without a restart."""
    url, token = re.search(r"^dashboard: (\S+) \(token: (\S+)\)$", server.said, flags=re.M).groups()
    headers = {"Authorization": f"Bearer {Path(token).read_text()}"}
    with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:
        place = f"{url}/api/serve/applications/"
        application = client.get(place).json()["applications"]["textlane"]["deployed_app_config"]
        lanes = ("ShortLane", "LongLane")
        application["deployments"] = [{"name": n, "user_config": user_config} for n in lanes]
        client.put(place, json={"applications": [application]}).raise_for_status()


def test_doctor_names_wrong_settings_and_a_batch_that_does_not_form_until_they_are_cured(
    bundle,
):
    with serving(bundle, *BAD, **OFTEN) as server:
        server.wait_for("Ctrl-C stops it.")
        with under_load(server.base_url):
            sick = examine(server)
            deploy(server, max_batch_requests=32)
            time.sleep(3)
            batching = examine(server)
        server.stop(2)
    with serving(bundle, **OFTEN) as server:
        server.wait_for("Ctrl-C stops it.")
        with under_load(server.base_url):
            cured = examine(server)
        server.stop(2)

    wrong = {"haproxy_off", "threads_oversubscribed"}
    assert {"batch_not_forming", *wrong} <= set(sick)
    assert sick["batch_not_forming"]["figures"]["max_batch_requests"] == 1
    assert "user_config" in sick["batch_not_forming"]["cure"]
    assert sick["threads_oversubscribed"]["figures"]["threads of all lane replicas"] == 16
    assert wrong <= set(batching)
    assert "batch_not_forming" not in batching
    assert not {"batch_not_forming", *wrong} & set(cured)
