"""The environment in which Ray's processes start, so that serving is fast and stays at home."""

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.haproxy import find_haproxy, haproxy_files, write_haproxy_starter
from cluster.listening import join_address
from cluster.loopback import FRONT_DOOR
from cluster.ray_settings import Scope, values_for

_LOOPBACK = "127.0.0.1"
_TOKEN_NAME = "ray_token"
_AUTH_MODE = "RAY_AUTH_MODE"
_ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With 0 this node is 127.0.0.1 and no other can join; see ``ray_settings``."""
INNER_PORTS = {
    "RAY_SERVE_HAPROXY_STATS_PORT": 8404,
    "RAY_SERVE_HAPROXY_METRICS_PORT": 9101,
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": 8500,
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": 9500,
}
"""Ray's variables for ports that must be free, and their defaults."""


@dataclass(frozen=True, kw_only=True)
class ServingPlace:
    """Where one server runs."""

    folder: Path
    """Our temporary folder: Ray's session, sockets and HAProxy's files; nobody else's to read."""
    with_haproxy: bool
    host: str
    """IP address on which requests are taken."""
    grpc_port: int | None = None
    """Port that takes them by gRPC, if one does."""


def ray_folder(folder: Path) -> Path:
    """Return where in our folder Ray's session goes.

    Ray opens its folder to all users of the machine (mode 777). In ours lie HAProxy's script and
    the socket by which it is commanded: whoever writes there, runs code as the server's user.
    """
    return folder / "r"


def serving_environ(environ: Mapping[str, str], place: ServingPlace) -> dict[str, str]:
    """Return the environment for Ray's processes; what the user set beats our choices.

    It writes the token's file and HAProxy's starter into the folder.

    Raises:
        ConfigError: there is no HAProxy.
    """
    folder = str(place.folder)
    result = {**_chosen(environ, place), **environ}
    # These are not choices: they keep this Ray apart from every other one on the machine.
    result.update(RAY_TMPDIR=str(ray_folder(place.folder)), TMPDIR=folder)
    result.update(haproxy_files(place.folder))
    result["RAY_SERVE_ENABLE_HA_PROXY"] = "1" if place.with_haproxy else "0"
    result[_ONE_MACHINE] = "0"
    result.pop("RAY_ADDRESS", None)
    if place.with_haproxy:
        binary = find_haproxy(environ)
        result.update(write_haproxy_starter(place.folder, binary=binary, host=place.host))
    else:
        # Else the throughput settings open a port on every ingress replica that nobody asks.
        result["RAY_SERVE_ENABLE_DIRECT_INGRESS"] = "0"
        if place.grpc_port is not None:
            # Ray's proxy always asks for all interfaces; HAProxy is told in its file.
            result[FRONT_DOOR] = join_address(place.host, place.grpc_port)
    if _AUTH_MODE not in environ:
        # Otherwise Ray saves a token in the home folder. A file, as every process of the user
        # and each `ps e` shows an environment.
        result.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(_write_token(place.folder)))
        result.pop("RAY_AUTH_TOKEN", None)
    return result


def _chosen(environ: Mapping[str, str], place: ServingPlace) -> dict[str, str]:
    """Return the variables for which the user's value, if there is one, is taken."""
    chosen = values_for(Scope.ALL, Scope.SERVING)
    # Not without a token, which is made only where the user has no way of his own.
    del chosen[_AUTH_MODE]
    if place.with_haproxy:
        chosen.update(
            {
                name: str(free_port(_LOOPBACK, preferred=port))
                for name, port in INNER_PORTS.items()
                if name not in environ
            }
        )
    return chosen


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str, *, preferred: int) -> int:
    """Return ``preferred`` or, where that is 0 or taken, a port that is free now."""
    if preferred != 0 and is_free(host, preferred):
        return preferred
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _write_token(folder: Path) -> Path:
    path = folder / _TOKEN_NAME
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path
