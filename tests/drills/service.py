"""A service over several nodes that a drill deploys, and what its clients see of a loss."""

import subprocess
import time
from collections import Counter
from dataclasses import dataclass

import httpx
import yaml
from nodes import ROOT, wait_for

from cluster.ray_settings import Scope, values_for

PORT = 8000
DEPLOYMENTS = ("Ingress", "ShortLane", "LongLane")
_READY_S = 100.0

def serving_settings():
    """Return the variables that a node that serves starts with, its own files aside."""
    settings = values_for(Scope.ALL, Scope.SERVING)
    del settings["RAY_AUTH_MODE"]  # The tests' own, with their token.
    return settings


def deploy(cluster, folder, *, deployments=(), **arguments):
    """Deploy the application on the running cluster, as `serve run` does."""
    config = {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": PORT},
        "logging_config": {"encoding": "JSON", "enable_access_log": False},
        "applications": [
            {
                "name": "textlane",
                "route_prefix": "/",
                "import_path": "serve_app.app:build_app",
                "args": {"threads_per_replica": 1, "admin_port": 0, **arguments},
                "deployments": list(deployments),
            }
        ],
    }
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    command = cluster.head.command("-m", "ray.serve.scripts", "run", str(path), "--non-blocking")
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**cluster.head.environ, "RAY_ADDRESS": cluster.gcs},
        capture_output=True,
        text=True,
        timeout=_READY_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def url_of(node):
    return f"http://{node.address}:{PORT}"


def replicas(node, deployment):
    """Return the processes of a deployment's replicas on a node."""
    return node.pids_of(f"ray::ServeReplica:textlane:{deployment}")


def wait_until_ready(node, *, within_s=_READY_S):
    """Return when the node's front door answers."""

    def answers():
        try:
            return httpx.get(f"{url_of(node)}/readyz", timeout=5).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    wait_for(answers, within_s=within_s, why=lambda: f"{node.name} does not answer")


@dataclass(frozen=True)
class Losses:
    """What clients saw of what happened at one moment."""

    num_answered: int
    num_failed: int
    outcomes: Counter
    clean_after_s: float
    """From that moment until no request that was asked later failed; 0 if none did."""
    longest_gap_s: float
    """Longest time in which no request that was answered well was asked."""


def losses(seen, *, since_s):
    """Count what requests met that were under way then or asked later."""
    failed = [one for one in seen if not one.is_right]
    asked = sorted(one.asked_s for one in seen if one.is_right and one.asked_s >= since_s)
    gaps = [later - sooner for sooner, later in zip([since_s, *asked], asked, strict=False)]
    return Losses(
        num_answered=len(asked),
        num_failed=len(failed),
        outcomes=Counter(one.outcome for one in failed),
        clean_after_s=max((one.asked_s - since_s for one in failed), default=0.0),
        longest_gap_s=max(gaps, default=float("inf")),
    )


def wait_for_clean(crowd, *, for_s, within_s):
    """Return when all requests asked for so many seconds were answered well."""
    began_s = time.monotonic()

    def is_clean():
        now_s = time.monotonic()
        recent = [one for one in list(crowd.seen) if one.asked_s >= now_s - for_s]
        is_long_enough = now_s - began_s >= for_s
        return is_long_enough and recent and all(one.is_right for one in recent)

    wait_for(is_clean, within_s=within_s, why=lambda: str(crowd.outcomes()))
