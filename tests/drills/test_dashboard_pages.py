"""Ray's own dashboard shows what serves and what was trained, in headless Chromium."""

import httpx
import pytest
from browser import CHROMIUM, look
from bundles import write_tiny_bundle
from nodes import cluster, free_port
from service import DEPLOYMENTS, deploy, url_of, wait_until_ready
from training import build_job, training

from cluster.ray_settings import Scope, values_for

pytestmark = [
    pytest.mark.ray,
    pytest.mark.drill,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def test_rays_pages_show_the_service_and_the_training(tmp_path):
    settings = values_for(Scope.ALL, Scope.SERVING, Scope.TRAINING)
    # The page would ask a person for the token; it listens on this machine alone.
    settings["RAY_AUTH_MODE"] = "disabled"
    port = free_port()
    dashboard = ["--include-dashboard=true", f"--dashboard-port={port}"]
    job = build_job(tmp_path / "job", num_workers=1, epochs=4)
    with cluster(**settings) as nodes:
        nodes.add(cpus=6, is_head=True, options=[*dashboard, "--dashboard-host=127.0.0.1"])
        with training(job, nodes) as run:
            run.finish()
        bundle = write_tiny_bundle(tmp_path / "bundle").folder
        deploy(nodes, tmp_path, bundle=str(bundle))
        wait_until_ready(nodes.head)
        answer = httpx.post(f"{url_of(nodes.head)}/v1/predict", json={"text": "good"}, timeout=30)
        runs = httpx.get(f"http://127.0.0.1:{port}/api/train/v2/runs/v1", timeout=30).json()
        pages = {
            name: look(f"http://127.0.0.1:{port}/#/{name}", tmp_path, seconds=10)
            for name in ("serve", "jobs")
        }
        for name in pages:
            look(f"http://127.0.0.1:{port}/#/{name}", tmp_path, picture=tmp_path / f"{name}.png")

    print(f"pictures: {tmp_path}")
    assert answer.status_code == httpx.codes.OK
    for shown in (*DEPLOYMENTS, "textlane", "RUNNING", "HEALTHY"):
        assert shown in pages["serve"]
    # Ray 2.60's open source has no Train page; the API behind it is there.
    assert [one["status"] for one in runs["train_runs"]] == ["FINISHED"]
    for shown in ("pipeline train", "SUCCEEDED"):
        assert shown in pages["jobs"]
