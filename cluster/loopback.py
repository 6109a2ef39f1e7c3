"""Keeps every port of a Ray of one machine on 127.0.0.1, where Ray 2.60 has no setting for it.

Two things listen on all interfaces unless they are told otherwise: Ray's own processes, because
Ray replaces the node address 127.0.0.1 by the machine's, and the gRPC server that each Serve
replica opens for calls between deployments. The latter takes pickled calls from whoever reaches
it, without a token, so whoever reaches it can run code.
"""

from typing import Any

NODE_ADDRESS = "127.0.0.1"
WORKER_HOOK = "cluster.loopback.keep_grpc_on_loopback"
"""Import path of the second half, for ``worker_process_setup_hook`` of Ray's ``runtime_env``."""
_WIDE = ("[::]:", "0.0.0.0:")


def keep_ray_on_loopback() -> None:
    """Let ``ray.init(_node_ip_address="127.0.0.1")`` in this process mean what it says.

    With that address Ray's processes bind to 127.0.0.1 alone; no other machine can join.
    """
    from ray._private import services

    replace_localhost = services.resolve_ip_for_localhost

    def keep_address(host: str) -> str:
        return host if host == NODE_ADDRESS else str(replace_localhost(host))

    services.resolve_ip_for_localhost = keep_address


def keep_grpc_on_loopback() -> None:
    """Bind gRPC servers that ask for all interfaces to 127.0.0.1; Ray's workers begin with this."""
    from grpc.aio import _server

    _server.Server.add_insecure_port = _on_loopback(_server.Server.add_insecure_port)


def _on_loopback(add_port: Any) -> Any:
    def add_narrow_port(server: Any, address: str) -> int:
        for wide in _WIDE:
            if address.startswith(wide):
                address = f"{NODE_ADDRESS}:{address.removeprefix(wide)}"
        return int(add_port(server, address))

    return add_narrow_port
