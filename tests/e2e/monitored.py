"""A real Prometheus, with the project's own configuration, beside a running server."""

import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml
from checkout import ROOT, environment
from served import free_port

PROMETHEUS = shutil.which("prometheus")
FOLDER = ROOT / "cluster/monitoring"
BODIES = (
    {"text": "the good film is fun"},
    {"text": "the dull film is bad " * 8},  # Longer than the bundle takes: the long lane, and cut.
    {"text": ""},  # Refused.
)


class Prometheus:
    def __init__(self, url):
        self.url = url

    def get(self, path, **parameters):
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, trust_env=False).json()
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]

    def has_data(self, expr):
        for name in ("lane", "version", "job"):
            expr = expr.replace(f"${name}", ".*")
        samples = self.get("query", query=expr)["result"]
        return any(not math.isnan(float(sample["value"][1])) for sample in samples)


@contextmanager
def prometheus_on(discovery_file, folder):
    """Run Prometheus with our files on a discovery file; 15 s are made 1 s."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (ray,) = config["scrape_configs"]
    ray["file_sd_configs"] = [{"files": [discovery_file], "refresh_interval": "5s"}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy2(FOLDER / "rules.yml", folder)
    address = f"127.0.0.1:{free_port()}"
    command = [PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def light_load(base_url):
    """Send a few requests a second of each kind, good and bad."""
    over = threading.Event()

    def ask():
        with httpx.Client(base_url=base_url, timeout=30, trust_env=False) as client:
            while not over.wait(0.2):
                for body in BODIES:
                    client.post("/v1/predict", json=body)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def reported_training(server):
    """Have a program report a training's figures to the server's Ray."""
    token = re.search(r"\(token: (\S+)\)", server.said)[1]
    port = re.search(r"gcs_server: (\d+)", server.said)[1]
    inner = {
        **environment(server.scratch),
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": token,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    program = Path(__file__).with_name("training_figures.py")
    process = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, env=inner)
    try:
        yield
    finally:
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def wait_for_data(prometheus, exprs, timeout_s=60.0):
    """Return which of the expressions have no data after a while."""
    left, deadline = list(exprs), time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        time.sleep(1.0)
        left = [expr for expr in left if not prometheus.has_data(expr)]
    return left
