"""Where requests go: the URL, its addresses, and whether they may be put under load."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any

from pipeline.contract.errors import ConfigError
from serve_app.service_address import split_url

DEFAULT_PATH = "/v1/predict"
_EXAMPLE = "http://127.0.0.1:8000"

Address = tuple[int, tuple[Any, ...]]
"""A socket family and the address that its ``connect`` takes."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One place to send requests to."""

    url: str
    host: str
    """Name or address, without brackets."""
    host_header: str
    path: str
    """Path and query."""
    is_tls: bool
    addresses: tuple[Address, ...]
    """Looked up once, so that what was allowed is what gets the load."""


def find_target(url: str, *, is_mine: bool) -> Target:
    """Return the target of a URL; without a path it is ``/v1/predict``.

    Args:
        url: http or https.
        is_mine: the user says that the service is theirs, wherever it is.

    Raises:
        ConfigError: the URL cannot be used, its host is not known, or it is neither this
            machine nor in a private network and ``is_mine`` is not given.
    """
    parts, port = split_url(url, example=_EXAMPLE, key_option="--api-key")
    host = parts.hostname or ""
    is_tls = parts.scheme == "https"
    addresses = _look_up(host, port or (443 if is_tls else 80), url=url)
    foreign = [str(address[1][0]) for address in addresses if not _is_near(address)]
    if foreign and not is_mine:
        raise ConfigError(
            "is neither this machine nor in a private network; load without its owner's consent "
            "is an attack",
            place=url,
            value=foreign[0],
            remedy="Add --yes-this-is-mine if you run this service.",
        )
    path = parts.path if parts.path not in ("", "/") else DEFAULT_PATH
    host_header = f"[{host}]" if ":" in host else host
    return Target(
        url=f"{parts.scheme}://{parts.netloc}{path}",
        host=host,
        host_header=host_header if port is None else f"{host_header}:{port}",
        path=f"{path}?{parts.query}" if parts.query else path,
        is_tls=is_tls,
        addresses=addresses,
    )


def _look_up(host: str, port: int, *, url: str) -> tuple[Address, ...]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the host {host!r} is not known: {getattr(error, 'strerror', None) or error}",
            place=url,
            remedy="Check the name, or write the address.",
        ) from None
    return tuple(dict.fromkeys((int(family), address) for family, _, _, _, address in found))


def _is_near(address: Address) -> bool:
    near = ipaddress.ip_address(str(address[1][0]).partition("%")[0])
    if isinstance(near, ipaddress.IPv6Address) and near.ipv4_mapped:
        near = near.ipv4_mapped
    return near.is_loopback or near.is_private or near.is_link_local
