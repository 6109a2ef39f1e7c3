"""Every RAY_* setting that textlane uses, with its value and why: the one source of them.

`python -m cluster.ray_settings` writes ``ray_settings.env`` from it; images, manifests and the
local server take their values from here, and a test finds what is used but not listed.
"""

import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ENV_FILE = Path(__file__).with_name("ray_settings.env")


class Scope(Enum):
    """Which of Ray's processes need it."""

    ALL = "all"
    SERVING = "serving"
    TRAINING = "training"


@dataclass(frozen=True, kw_only=True)
class RaySetting:
    """One environment variable of Ray."""

    name: str
    value: str | None
    """None: it differs from place to place; ``why`` says who sets it."""
    why: str
    scope: Scope = Scope.ALL


RAY_SETTINGS = (
    RaySetting(
        name="RAY_USAGE_STATS_ENABLED",
        value="0",
        why="Nothing is reported to Ray's makers.",
    ),
    RaySetting(
        name="RAY_AUTH_MODE",
        value="token",
        why="Ray's dashboard, job server and gRPC ports run code for whoever reaches them; so they "
        "ask for a token. Without one no process of Ray starts.",
    ),
    RaySetting(
        name="RAY_SERVE_THROUGHPUT_OPTIMIZED",
        value="1",
        scope=Scope.SERVING,
        why="Router and replica share an event loop, calls go by gRPC, log lines are buffered: "
        "with the next one 310 instead of 145 short texts/s on 2 cores.",
    ),
    RaySetting(
        name="RAY_SERVE_ENABLE_HA_PROXY",
        value="1",
        scope=Scope.SERVING,
        why="HAProxy takes requests to the ingress replicas, in the place of Ray's Python proxy. "
        "`textlane serve --no-haproxy` sets 0.",
    ),
    RaySetting(
        name="RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S",
        value="2",
        scope=Scope.SERVING,
        why="Seconds that a stopping ingress replica still takes requests, while HAProxy learns of "
        "it; chosen: HAProxy reloads within a second. Ray's 30 would also be the time that Ctrl-C "
        "takes.",
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_RETRY_ON",
        value="conn-failure empty-response",
        scope=Scope.SERVING,
        why="When HAProxy asks another replica: also when one was lost before it answered, since "
        "asking twice does no harm here. Of 8 requests in the hands of a killed ingress 2 to 4 "
        "were lost, not 8.",
    ),
    RaySetting(
        name="RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S",
        value="1",
        scope=Scope.SERVING,
        why="Seconds between Ray's checks of HAProxy; three must fail before it is replaced. "
        "Measured on 2 cores, HAProxy killed under load: answers again after 6 s, with Ray's 10 "
        "after 24 s.",
    ),
    RaySetting(
        name="RAY_USE_UVLOOP",
        value="0",
        scope=Scope.SERVING,
        why="uvloop's libuv accepts one connection in each turn of the event loop, asyncio all "
        "that wait. Measured on 2 cores, 1,200 connections at once: 762 of them were not accepted "
        "after 8 s and HAProxy took the ingress for dead; P99 4.2 s with it, 1.6 s without. At "
        "128 connections it would be 5 % more texts a second.",
    ),
    RaySetting(
        name="RAY_SERVE_GRPC_MAX_MESSAGE_SIZE",
        value=str(16 * 1024 * 1024),
        scope=Scope.SERVING,
        why="Bytes of one gRPC message; longer ones are refused unread. Ray's default is 2 GiB. "
        "Chosen: four times what max_body_bytes allows by default, so that what is a little over "
        "it is told so.",
    ),
    RaySetting(
        name="RAY_TRAIN_HEALTH_CHECK_INTERVAL_S",
        value="0.5",
        scope=Scope.TRAINING,
        why="Ray looks at its training workers every 2 s by default; up to that long is lost at "
        "start, end and after a loss.",
    ),
    RaySetting(
        name="RAY_TRAIN_ENABLE_PREEMPTION_WATCHER",
        value="1",
        scope=Scope.TRAINING,
        why="A checkpoint is saved when a node is announced to go. On a cluster that training "
        "starts for itself it is 0: nobody announces that this machine goes.",
    ),
    RaySetting(
        name="RAY_TRAIN_ENABLE_STATE_TRACKING",
        value="1",
        scope=Scope.TRAINING,
        why="The dashboard's API (/api/train/v2/runs/v1) tells of runs, attempts and workers; "
        "without it of none. On a cluster that training starts for itself it is 0: that has no "
        "dashboard.",
    ),
    RaySetting(
        name="RAY_DISABLE_FAILURE_SIGNAL_HANDLER",
        value=None,
        why="1 in every stage: Ray's C++ part would answer SIGTERM with a stack trace and end the "
        "process before it has cleaned up.",
    ),
    RaySetting(
        name="RAY_AUTH_TOKEN",
        value=None,
        why="The token. In Kubernetes from the Secret that authOptions names; never in a file of "
        "this repository.",
    ),
    RaySetting(
        name="RAY_AUTH_TOKEN_PATH",
        value=None,
        why="A file with the token, better where `ps e` shows environments: `textlane serve` "
        "writes one that only its user can read, machines of their own have /etc/textlane/token.",
    ),
    RaySetting(
        name="RAY_ADDRESS",
        value=None,
        why="Set by Ray in a submitted job, which then joins the running cluster; `textlane serve` "
        "takes it out, since it starts its own.",
    ),
    RaySetting(
        name="RAY_TMPDIR",
        value=None,
        why="Where Ray's session goes: a folder of their own for `textlane serve` and the demo, "
        "removed at the end.",
    ),
    RaySetting(
        name="RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
        value=None,
        scope=Scope.SERVING,
        why="0 in `textlane serve`: Ray takes 127.0.0.1 as its node's address, whatever the "
        "system, and binds its processes to that alone; no other machine can join. Without it Ray "
        "replaces 127.0.0.1 by the machine's.",
    ),
    RaySetting(
        name="RAY_SERVE_ENABLE_DIRECT_INGRESS",
        value=None,
        scope=Scope.SERVING,
        why="0 with `--no-haproxy`; else the throughput settings open a port on every ingress "
        "replica that nobody asks.",
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_BINARY_PATH",
        value=None,
        scope=Scope.SERVING,
        why="`textlane serve`'s script in the place of HAProxy, which binds it where we say.",
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_CONFIG_FILE_LOC",
        value=None,
        scope=Scope.SERVING,
        why="With the next four: HAProxy's files in `textlane serve`'s own folder and not in "
        "/tmp/haproxy-serve, where every user may command it.",
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_SOCKET_PATH", value=None, scope=Scope.SERVING, why="As above."
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_SERVER_STATE_BASE", value=None, scope=Scope.SERVING, why="As above."
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_SERVER_STATE_FILE", value=None, scope=Scope.SERVING, why="As above."
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH",
        value=None,
        scope=Scope.SERVING,
        why="As above.",
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_STATS_PORT",
        value=None,
        scope=Scope.SERVING,
        why="With the next two: free ports, where `textlane serve` finds Ray's taken.",
    ),
    RaySetting(
        name="RAY_SERVE_HAPROXY_METRICS_PORT", value=None, scope=Scope.SERVING, why="As above."
    ),
    RaySetting(
        name="RAY_SERVE_FALLBACK_PROXY_HTTP_PORT", value=None, scope=Scope.SERVING, why="As above."
    ),
    RaySetting(
        name="RAY_SERVE_FALLBACK_PROXY_GRPC_PORT", value=None, scope=Scope.SERVING, why="As above."
    ),
    RaySetting(
        name="RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE",
        value=None,
        scope=Scope.SERVING,
        why="Not set: with the throughput settings 1,000 lines reach the log late. 1 while you "
        "look for a fault.",
    ),
    RaySetting(
        name="RAY_PROMETHEUS_HOST",
        value=None,
        why="Where the dashboard finds Prometheus, for the charts on its pages.",
    ),
    RaySetting(
        name="RAY_GRAFANA_HOST",
        value=None,
        why="Where the dashboard finds Grafana, which draws those charts.",
    ),
)


def values_for(*scopes: Scope) -> dict[str, str]:
    """Return name → value of the settings that have one and are of these scopes."""
    return {
        setting.name: setting.value
        for setting in RAY_SETTINGS
        if setting.value is not None and setting.scope in scopes
    }


def env_text() -> str:
    """Return the list as a file for `docker --env-file` and `kubectl --from-env-file`."""
    lines = [
        "# Made by `python -m cluster.ray_settings`. A value reaches to the end of its line,",
        "# without quotes, as docker, kubectl and systemd read it; a shell would not.",
    ]
    for setting in RAY_SETTINGS:
        if setting.value is not None:
            lines += ["", *_comment(f"[{setting.scope.value}] {setting.why}")]
            lines.append(f"{setting.name}={setting.value}")
    lines += ["", "# Set from place to place, not here:"]
    for setting in RAY_SETTINGS:
        if setting.value is None:
            lines += ["#", f"# {setting.name} [{setting.scope.value}]", *_comment(setting.why)]
    return "\n".join(lines) + "\n"


def _comment(text: str, width: int = 98) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > width and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [f"# {line}" for line in lines]


def main() -> int:
    """Write the file."""
    ENV_FILE.write_text(env_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
