"""From `serve run` on a running cluster to the first answer, beside how the peers start.

    python tests/perf/serving_start.py BUNDLE [--rounds 3] [--peers NAME …]

One Ray cluster is started, of this program alone, and each round `serve run` brings Serve and
textlane up on it and Ctrl-C takes both away. Peers start from nothing. Nothing else should run.
"""

import argparse
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from serving_contest import answers, free_port, running, stop
from serving_peers import BIN, PEERS_BY_NAME, ROOT

from cluster.haproxy import haproxy_files

READY_S = 90.0
MODES = {
    "serve run, Ray's defaults": {},
    "serve run, throughput settings and HAProxy": {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
    },
}
_PORTS = (
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
)
"""Ray's variables for ports that another server may have taken."""
_STARTED_WHOLE = ("textlane", "FastAPI", "LitServe", "BentoML", "Ray Serve, docs")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # What was started ends with us.
    # A shell has its jobs in the background ignore it, and theirs would as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=lambda text: Path(text).resolve())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=_STARTED_WHOLE, choices=PEERS_BY_NAME)
    parser.add_argument("--threads", type=int, default=2, help="of a peer's one session")
    parser.add_argument("--envs", type=Path, default=Path("outputs/peers"))
    options = parser.parse_args()
    print("| start | first answer, s: median (least–most) |\n|---|---|")
    for name, variables in MODES.items():
        with cluster(variables) as environ:
            show(name, [serve_run(options.bundle, environ) for _ in range(options.rounds)])
    with tempfile.TemporaryDirectory(prefix="start-") as scratch:
        for name in options.peers:
            seconds = []
            for _ in range(options.rounds):
                with running(name, Path(scratch), options) as (_, first_answer_s, _):
                    seconds.append(first_answer_s)
            show(f"{name}, from nothing", seconds)


def show(name: str, seconds: list[float]) -> None:
    middle = statistics.median(seconds)
    print(f"| {name} | {middle:.1f} ({min(seconds):.1f}–{max(seconds):.1f}) |", flush=True)


@contextmanager
def cluster(variables: dict[str, str]) -> Iterator[dict[str, str]]:
    """Give the environment in which commands find a cluster of our own, on loopback."""
    # Sockets live in it, whose paths must be short.
    folder = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
    port = free_port()
    environ = {
        **os.environ,
        **variables,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        **{name: str(free_port()) for name in _PORTS},
        # Ray's own token would go into the home folder.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_TMPDIR": str(folder),
        **haproxy_files(folder),
        "PYTHONPATH": str(ROOT),
    }
    command = [str(BIN / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    command += [f"--port={port}", f"--dashboard-port={free_port()}", f"--temp-dir={folder}"]
    command += ["--include-dashboard=true", f"--dashboard-agent-listen-port={free_port()}"]
    with (folder / "ray.log").open("w") as log:
        process = subprocess.Popen(
            command, env=environ, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        wait_for_cluster(process, environ, folder / "ray.log")
        yield environ
    finally:
        stop(process, signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_cluster(
    process: "subprocess.Popen[bytes]", environ: dict[str, str], log: Path
) -> None:
    deadline = time.monotonic() + READY_S
    command = [str(BIN / "ray"), "status"]
    while (done := subprocess.run(command, env=environ, capture_output=True, text=True)).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{log.read_text()}\n{done.stderr}")
        time.sleep(0.5)


def serve_run(bundle: Path, environ: dict[str, str]) -> float:
    """Return the seconds from the command to the first answer; Serve is gone afterwards."""
    config = yaml.safe_load((ROOT / "serve_app" / "config.yaml").read_text())
    port = free_port()
    config["http_options"]["port"] = port
    config["applications"][0]["args"]["bundle"] = str(bundle)
    folder = Path(environ["RAY_TMPDIR"])
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{port}/v1/predict"
    began = time.monotonic()
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [str(BIN / "serve"), "run", str(folder / "serve.yaml")],
            env=environ,
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while not answers(url):
            if process.poll() is not None or time.monotonic() - began > READY_S:
                raise SystemExit((folder / "serve.log").read_text())
            time.sleep(0.05)
        return round(time.monotonic() - began, 2)
    finally:
        stop(process)


if __name__ == "__main__":
    main()
