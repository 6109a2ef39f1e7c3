"""`textlane serve`: start, say where it answers and what listens, wait to be stopped."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from rich.console import Console

from cluster.listening import ListeningPort
from cluster.serve_config import ServeOptions, ServingPlan, plan_serving
from cluster.serving import Server, serving
from cluster.serving_env import ray_folder
from pipeline.contract.bundle import BundleManifest, load_bundle

_DISCOVERY_NAME = "prom_metrics_service_discovery.json"
"""Ray's list of where metrics are, for Prometheus; renewed as nodes come and go."""
_PURPOSES = {
    "RAY_SERVE_HAPROXY_STATS_PORT": "HAProxy's statistics, /stats",
    "RAY_SERVE_HAPROXY_METRICS_PORT": "HAProxy's metrics, /metrics",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": "Ray Serve's own proxy, HAProxy's reserve",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": "the same for gRPC",
}


def run_serve(options: ServeOptions, console: Console) -> None:
    """Serve until a signal comes; KeyboardInterrupt once it was ready means a good end.

    Args:
        options: what the command line asks for.
        console: where progress and addresses are shown.

    Raises:
        ConfigError: a setting, the file or the address cannot be used.
        FolderError: (or a subtype) there is no bundle, or it is damaged.
        CommandError: the server did not start, or ended by itself.
        KeyboardInterrupt: stopped before it was ready.
    """
    plan = plan_serving(options, os.environ)
    manifest = load_bundle(plan.bundle).manifest
    is_up = False
    try:
        with (
            _progress(console) as on_stage,
            serving(plan, environ=os.environ, on_stage=on_stage) as server,
        ):
            is_up = True
            on_stage("")
            for line in describe_server(server, manifest):
                style = "yellow" if line.startswith("warning") else None
                console.print(line, style=style, markup=False, highlight=False)
            server.process.wait()
    except KeyboardInterrupt:
        if not is_up:
            raise
    console.print("stopped; nothing is left running", highlight=False)


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], None]]:
    """Give a function that shows what is awaited; the empty text ends the showing."""
    if not console.is_terminal:
        yield lambda stage: console.print(stage, markup=False, highlight=False) if stage else None
        return
    with console.status("starting") as status:
        yield lambda stage: status.update(stage) if stage else status.stop()


def describe_server(server: Server, manifest: BundleManifest) -> list[str]:
    """Return what a person is told when the server is ready, line by line."""
    plan = server.plan
    return [
        f"ready: {plan.base_url} serves {plan.bundle}",
        f"try:   {curl_line(plan, manifest)}",
        *([f"grpc:  {plan.grpc_address}, textlane.v1.Predictor"] if plan.grpc_port else []),
        *([f"releases:  http://127.0.0.1:{plan.admin_port}/release"] if plan.admin_port else []),
        f"dashboard: http://127.0.0.1:{plan.dashboard_port}"
        + (f" (token: {path})" if (path := server.environ.get("RAY_AUTH_TOKEN_PATH")) else ""),
        f"metrics:   http://127.0.0.1:{server.metrics_port}/metrics",
        f"prometheus: {ray_folder(server.folder) / _DISCOVERY_NAME} (see cluster/monitoring)",
        f"logs:      {ray_folder(server.folder) / 'session_latest' / 'logs'}",
        *describe_ports(server.listening(), _known_ports(server)),
        "Ctrl-C stops it.",
    ]


def curl_line(plan: ServingPlan, manifest: BundleManifest) -> str:
    """Return one command that asks the server what its kind of model takes."""
    body: dict[str, object] = {"text": "A film to see twice."}
    if manifest.takes_pairs:
        body = {"text": "Is it long?", "text_pair": "It takes two hours."}
    elif manifest.task == "token_classification":
        body = {"words": ["Anna", "lives", "in", "Oslo", "."]}
    header = "-H 'content-type: application/json'"
    return f"curl -s {plan.base_url}/v1/predict {header} -d '{json.dumps(body)}'"


def describe_ports(ports: Sequence[ListeningPort], known: dict[int, str]) -> list[str]:
    """Return a line for each kind of port, and a warning for each that others can reach.

    Args:
        ports: all that listen.
        known: port → what is there; the others are shown together by their process.
    """
    if not ports:
        return ["warning: /proc does not tell which ports listen"]
    lines = ["listening ports:"]
    lines += [f"  {p.place:<22} {p.process}: {known[p.port]}" for p in ports if p.port in known]
    others = sorted(
        (p for p in ports if p.port not in known), key=lambda p: (p.address, p.process, p.port)
    )
    for (address, process), group in groupby(others, key=lambda p: (p.address, p.process)):
        numbers = " ".join(str(port.port) for port in group)
        lines.append(f"  {address:<22} {process}: {numbers}")
    for port in ports:
        if not port.is_loopback:
            what = known.get(port.port, "Ray's own; it must not be reached by others")
            lines.append(f"warning: other machines can reach {port.place}, {port.process}: {what}")
    return lines


def _known_ports(server: Server) -> dict[int, str]:
    plan = server.plan
    known = {
        int(number): purpose
        for name, purpose in _PURPOSES.items()
        if (number := server.environ.get(name)) is not None
    }
    known[plan.dashboard_port] = "Ray's dashboard; asks for the token"
    if plan.admin_port is not None:
        known[plan.admin_port] = "releases, /release"
    if server.metrics_port is not None:
        known[server.metrics_port] = "metrics of this machine, /metrics"
    known[plan.port] = "requests"
    if plan.grpc_port is not None:
        known[plan.grpc_port] = "requests by gRPC"
    return known
