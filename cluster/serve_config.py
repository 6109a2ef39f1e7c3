"""Which configuration Ray Serve gets: the Ray Serve file, changed by the command line."""

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from cluster.listening import join_address
from cluster.serving_env import free_port, is_free
from pipeline.contract.bundle import demand_bundle
from pipeline.contract.errors import ConfigError
from pipeline.contract.settings import read_yaml_mapping

_ENV_PREFIX = "TEXTLANE_SERVE__"
_BUNDLE = "bundle"
_ADMIN_PORT = "admin_port"
_DEFAULT_ADMIN_PORT = 8002
_LOOPBACK = "127.0.0.1"
_HINT = "serve_app/config.yaml is a complete Ray Serve file."
GRPC_FUNCTION = "serve_app.rpc.predictor.add_predictor"
"""Import path of what registers the gRPC service, where the file names none."""
_GRPC_PORT = 9000
"""Ray's default."""
_LAST_PORT = 65535
_SET_KEY = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What the user asks to be served."""

    config: Path
    bundle: str | None = None
    """None: what ``sets``, the environment or the file names."""
    sets: tuple[str, ...] = ()
    host: str | None = None
    """Address to take requests on; None: the file's."""
    port: int | None = None
    """None: the file's; 0: one that is free."""
    grpc_port: int | None = None
    """None: the file's, if it has gRPC; 0: one that is free."""
    dashboard_port: int | None = None
    """None: 8265, or one that is free where that is taken."""
    with_haproxy: bool = True


@dataclass(frozen=True, kw_only=True)
class ServingPlan:
    """What will be started."""

    config: dict[str, Any]
    """The Ray Serve configuration; its bundle is an absolute path."""
    bundle: Path
    host: str
    """IP address that takes requests."""
    port: int
    dashboard_port: int
    admin_port: int | None
    """Where releases are started and seen; None: it is set to one that the server takes itself."""
    with_haproxy: bool
    settings: dict[str, str]
    """Environment variables that carry the settings of the command line."""
    grpc_port: int | None = None
    """None where there is no gRPC."""

    @property
    def base_url(self) -> str:
        """Where this machine reaches the server."""
        return f"http://{join_address(self._near_host, self.port)}"

    @property
    def grpc_address(self) -> str | None:
        """Where this machine reaches it by gRPC; None without."""
        return None if self.grpc_port is None else join_address(self._near_host, self.grpc_port)

    @property
    def _near_host(self) -> str:
        return {"0.0.0.0": _LOOPBACK, "::": "::1"}.get(self.host, self.host)


def default_config() -> Path:
    """Return the Ray Serve file of the installed ``serve_app``.

    Raises:
        ConfigError: it is not installed.
    """
    found = find_spec("serve_app")  # Finds the folder without running its code.
    if found is None or found.origin is None:
        raise ConfigError("serve_app is not installed", remedy="Name a file with --config.")
    return Path(found.origin).with_name("config.yaml")


def plan_serving(options: ServeOptions, environ: Mapping[str, str]) -> ServingPlan:
    """Return what to start, or say why that cannot be.

    Raises:
        ConfigError: the file, a setting or an address cannot be used, or the port is taken.
        MissingFileError: there is no bundle.
    """
    config = read_serve_file(options.config)
    settings = settings_environ(options.sets)
    arguments = config["applications"][0].setdefault("args", {})
    bundle = _find_bundle(options, {**environ, **settings}, arguments)
    demand_bundle(bundle, named_by="--bundle")
    arguments[_BUNDLE] = str(bundle)
    settings.pop(f"{_ENV_PREFIX}{_BUNDLE.upper()}", None)
    admin_port = _choose_admin_port({**environ, **settings}, arguments)
    http = config["http_options"]
    host = _read_host(str(options.host or http["host"]))
    port = _choose_port(host, int(http["port"]) if options.port is None else options.port)
    # Behind HAProxy Ray's own servers need no other address than this one.
    http.update(host=_LOOPBACK if options.with_haproxy else host, port=port)
    grpc_port = _plan_grpc(config, host=host, asked_port=options.grpc_port, http_port=port)
    return ServingPlan(
        config=config,
        bundle=bundle,
        host=host,
        port=port,
        dashboard_port=_choose_dashboard_port(options.dashboard_port),
        grpc_port=grpc_port,
        admin_port=admin_port,
        with_haproxy=options.with_haproxy,
        settings=settings,
    )


def _plan_grpc(
    config: dict[str, Any], *, host: str, asked_port: int | None, http_port: int
) -> int | None:
    """Complete ``grpc_options`` and return their port; None where gRPC is not wanted."""
    options = config["grpc_options"]
    if asked_port is None and not options.get("grpc_servicer_functions"):
        return None
    wanted = int(options.get("port", _GRPC_PORT)) if asked_port is None else asked_port
    if wanted == http_port:
        raise ConfigError(
            "HTTP and gRPC cannot share a port",
            place="--grpc-port",
            value=wanted,
            remedy="Give another one, or 0 for one that is free.",
        )
    port = _choose_port(host, wanted, option="--grpc-port")
    functions = options.get("grpc_servicer_functions") or [GRPC_FUNCTION]
    options.update(port=port, grpc_servicer_functions=functions)
    return port


def read_serve_file(path: Path) -> dict[str, Any]:
    """Return a Ray Serve file with ``http_options`` and one application.

    Raises:
        ConfigError: it is something else.
    """
    config = read_yaml_mapping(path, hint=_HINT)
    try:
        applications = config["applications"]
        (application,) = applications
        str(config["http_options"]["host"])
        ports = {
            "http_options.port": config["http_options"]["port"],
            "grpc_options.port": (config.get("grpc_options") or {}).get("port", _GRPC_PORT),
        }
        str(application["import_path"])
        dict(application.get("args") or {})
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"not a Ray Serve configuration with http_options and one application: {error!r}",
            place=str(path),
            remedy=_HINT,
        ) from None
    for name, port in ports.items():
        # A bool is an int to Python.
        if type(port) is not int or not 0 <= port <= _LAST_PORT:
            raise ConfigError(
                f"must be a number from 0 to {_LAST_PORT}",
                place=f"{path}: {name}",
                value=port,
                remedy="0 takes one that is free.",
            )
    application["args"] = dict(application.get("args") or {})
    config["grpc_options"] = dict(config.get("grpc_options") or {})
    return config


def settings_environ(sets: Sequence[str]) -> dict[str, str]:
    """Return ``key=value`` items as environment variables, which beat the file.

    ``["short_replicas=2"]`` is ``{"TEXTLANE_SERVE__SHORT_REPLICAS": "2"}``; the last one of a
    name counts.

    Raises:
        ConfigError: an item is not ``key=value``.
    """
    result = {}
    for item in sets:
        key, equals, text = item.partition("=")
        if not equals or not _SET_KEY.fullmatch(key.strip()) or "\0" in text:
            raise ConfigError("--set needs key=value", value=item, remedy="Write --set a=1.")
        result[f"{_ENV_PREFIX}{key.strip().upper().replace('.', '__')}"] = text
    return result


def in_words_of_the_command(message: str, settings: Mapping[str, str]) -> str:
    """Return a message in which ``--set`` stands for the variables that carried its values."""
    for name in settings:
        message = message.replace(f"environment {name}", "--set")
    return message


def _choose_admin_port(environ: Mapping[str, str], arguments: dict[str, Any]) -> int | None:
    """Return the port for releases; where none is given, one that is free goes into arguments."""
    given = environ.get(f"{_ENV_PREFIX}{_ADMIN_PORT.upper()}", arguments.get(_ADMIN_PORT))
    if given is None:
        arguments[_ADMIN_PORT] = free_port(_LOOPBACK, preferred=_DEFAULT_ADMIN_PORT)
        return int(arguments[_ADMIN_PORT])
    # What is no port, the service itself will refuse in its own words.
    return int(given) or None if re.fullmatch(r"[0-9]{1,5}", str(given)) else None


def _find_bundle(
    options: ServeOptions, environ: Mapping[str, str], arguments: Mapping[str, Any]
) -> Path:
    # An empty folder name would be the working folder.
    given = options.bundle
    if given is None:
        text = environ.get(f"{_ENV_PREFIX}{_BUNDLE.upper()}")
        given = arguments.get(_BUNDLE) if text is None else _read_value(text)
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise ConfigError(
            "there is no bundle to serve", value=given, remedy="Name its folder with --bundle."
        )
    return Path(given).resolve()


def _read_value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"not a value in YAML: {' '.join(str(error).split())}",
            place=_BUNDLE,
            value=text,
            remedy="Name the bundle's folder with --bundle, or put it in quotation marks.",
        ) from None


def _read_host(text: str) -> str:
    """Return the IP address of a name or address."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigError(
            "not an address of this machine",
            place="--host",
            value=text,
            remedy=f"Give an IP address: {_LOOPBACK}, or 0.0.0.0 for all interfaces.",
        ) from None
    return str(found[0][4][0])


def _choose_port(host: str, port: int, *, option: str = "--port") -> int:
    if port == 0:
        return free_port(host, preferred=0)
    if not is_free(host, port):
        raise ConfigError(
            "this address is taken or not of this machine",
            place=join_address(host, port),
            remedy=f"Give another one with {option}, or {option} 0 for one that is free.",
        )
    return port


def _choose_dashboard_port(port: int | None) -> int:
    if port is None:
        return free_port(_LOOPBACK, preferred=8265)
    return _choose_port(_LOOPBACK, port, option="--dashboard-port")
