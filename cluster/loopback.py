"""Keeps the gRPC servers of Ray Serve's replicas on 127.0.0.1; Ray 2.60 has no setting for it.

Each replica opens one on all interfaces, for calls between deployments. It takes pickled calls,
without a token, from whoever reaches it; and who sends a pickle runs code.
"""

import os
from typing import Any

NODE_ADDRESS = "127.0.0.1"
WORKER_HOOK = "cluster.loopback.keep_grpc_on_loopback"
"""Import path of the function, for ``worker_process_setup_hook`` of Ray's ``runtime_env``."""
FRONT_DOOR = "TEXTLANE_CLUSTER_GRPC_FRONT_DOOR"
"""Variable with the address, such as ``0.0.0.0:9000``, at which gRPC requests are taken where no
HAProxy does it; ``textlane serve`` sets it for the processes that it starts."""
_WIDE = ("[::]:", "0.0.0.0:")


def keep_grpc_on_loopback() -> None:
    """Bind gRPC servers that ask for all interfaces to 127.0.0.1; Ray's workers begin with this.

    The front door alone is bound where it is to be.
    """
    from grpc.aio import _server

    _server.Server.add_insecure_port = _on_loopback(
        _server.Server.add_insecure_port, front_door=os.environ.get(FRONT_DOOR)
    )


def _on_loopback(add_port: Any, *, front_door: str | None = None) -> Any:
    places = {} if front_door is None else {front_door.rpartition(":")[2]: front_door}

    def add_narrow_port(server: Any, address: str) -> int:
        for wide in _WIDE:
            if address.startswith(wide):
                port = address.removeprefix(wide)
                address = places.get(port, f"{NODE_ADDRESS}:{port}")
        return int(add_port(server, address))

    return add_narrow_port
