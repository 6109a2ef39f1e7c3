"""A service over several nodes that a drill deploys, and what its clients see of a loss."""

import subprocess
import time
from collections import Counter
from http import HTTPStatus
from itertools import pairwise

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


def deploy(cluster, folder, *, deployments=(), proxies="EveryNode", **arguments):
    """Deploy the application on the running cluster, as `serve run` does."""
    config = {
        "proxy_location": proxies,
        "http_options": {"host": "0.0.0.0", "port": PORT},
        "logging_config": {"encoding": "JSON", "enable_access_log": False},
        "applications": [
            {
                "name": "textlane",
                "route_prefix": "/",
                "import_path": "serve_app.app:build_app",
                "args": {"threads_per_replica": 1, **arguments},
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


def release(node, *words):
    """Return what `textlane release` says on the node's host."""
    done = subprocess.run(
        node.command("-m", "serve_app", "release", *words),
        cwd=ROOT,
        env=node.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_until_ready(node, *, within_s=_READY_S):
    """Return when the node's front door answers."""

    def answers():
        try:
            return httpx.get(f"{url_of(node)}/readyz", timeout=5).status_code == HTTPStatus.OK
        except httpx.HTTPError:
            return False

    wait_for(answers, within_s=within_s, why=lambda: f"{node.name} does not answer")


class Losses:
    """What clients saw of what happened at one moment."""

    def __init__(self, crowd, *, since_s):
        failed = [one for one in crowd.seen if one.outcome != HTTPStatus.OK]
        asked = sorted(one.asked_s for one in crowd.seen if one.is_right)
        asked = [since_s, *(one for one in asked if one >= since_s)]
        self.num_answered = len(asked) - 1
        self.num_wrong = len(crowd.wrong())
        self.num_failed = len(failed)
        self.outcomes = dict(Counter(one.outcome for one in failed))
        self._failures = [(one.asked_s - since_s, one.outcome, one.body.decode()) for one in failed]
        self.clean_after_s = max((one.asked_s - since_s for one in failed), default=0.0)
        """From that moment until the last request was asked that failed."""
        self.longest_gap_s = max(later - sooner for sooner, later in pairwise(asked))
        """Longest time in which no request was asked that was answered."""

    def __str__(self):
        return (
            f"{self.num_answered} requests answered, {self.num_failed} failed {self.outcomes}, "
            f"the last asked after {self.clean_after_s:.1f} s, longest gap "
            f"{self.longest_gap_s:.1f} s"
            + "".join(
                f"\n  after {s:.1f} s {outcome} {body}" for s, outcome, body in self._failures
            )
        )


def wait_for_clean(crowd, *, for_s, within_s=120.0):
    """Return when all requests asked for so many seconds were answered well."""
    began_s = time.monotonic()

    def is_clean():
        now_s = time.monotonic()
        recent = [one for one in list(crowd.seen) if one.asked_s >= now_s - for_s]
        is_long_enough = now_s - began_s >= for_s
        return is_long_enough and recent and all(one.is_right for one in recent)

    wait_for(is_clean, within_s=within_s, why=lambda: str(crowd.outcomes()))
