"""Serves the admin application on a port of its own, inside the desk's process."""

import asyncio
import socket

import uvicorn
from starlette.types import ASGIApp

from pipeline.contract.errors import ConfigError
from serve_app.release.admin_app import is_loopback


class AdminServer:
    """Listens from its making on, answers from ``start`` on."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, has_keys: bool) -> None:
        """Open the port.

        Args:
            app: what answers.
            host: name or address to listen on.
            port: 0 takes a free one.
            has_keys: whether ``app`` asks for a key.

        Raises:
            ConfigError: other machines could reach it and no key is asked for, or the port
                cannot be opened.
        """
        check_admin_host(host, has_keys=has_keys)
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        # No lifespan, no websocket; access is logged by the application's own observers.
        config = uvicorn.Config(
            app, lifespan="off", ws="none", access_log=False, log_config=None, log_level="warning"
        )
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Answer from now on, on the running event loop."""
        self._task = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)
        if self._task.done():
            await self._task  # Raises what kept it from starting.

    async def stop(self) -> None:
        """Close the port; requests under way are answered first."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()


def check_admin_host(host: str, *, has_keys: bool) -> None:
    """Check that only this machine reaches a port that asks for no key.

    Raises:
        ConfigError: other machines could.
    """
    if not is_loopback(host) and not has_keys:
        raise ConfigError(
            "other machines could start and promote releases",
            place="admin_host",
            value=host,
            remedy="Set admin_keys, or admin_host to 127.0.0.1.",
        )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _not_opened(host, port, error) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise _not_opened(host, port, error) from None
    return listening


def _not_opened(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"the port cannot be opened: {error.strerror}",
        place="admin_port",
        value=f"{host}:{port}",
        remedy="Take another one, or 0 for a free one; `textlane release --url` must name it.",
    )
