"""Joins or starts the Ray cluster that a stage runs on, and leaves it as it was found."""

import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.config import RaySettings


@contextmanager
def ray_session(settings: RaySettings) -> Iterator[None]:
    """Connect to Ray for the length of the block; stop only a cluster that was started here.

    Inside a submitted job (Ray sets ``RAY_ADDRESS``) or with ``settings.address`` the
    running cluster is joined; otherwise one is started on this machine, without dashboard,
    and its files are removed at the end. Nested calls reuse the outer connection.
    Ray 2.60 turns a loopback node address into the machine's own, so a local cluster's
    internal ports can be reached from its network.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = settings.address or os.environ.get("RAY_ADDRESS")
    if not address:
        _demand_own_token()
    import ray

    if ray.is_initialized():
        yield
        return
    if address:
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()
        return
    with _local_cluster(settings.num_cpus):
        yield


def _demand_own_token() -> None:
    # Left alone, Ray 2.60 saves a token in the home folder for a local cluster, and that
    # file then changes what `ray start` and `ray job submit` do on this machine.
    # Ray reads the mode when it is imported; a caller who has done so decides by itself.
    if "RAY_AUTH_MODE" not in os.environ and "ray" not in sys.modules:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(16)


@contextmanager
def _local_cluster(num_cpus: int | None) -> Iterator[None]:
    import ray

    # Ray never removes its session folders; each holds logs and sockets, whose paths may
    # have 107 bytes in all: hence the short name.
    folder = tempfile.mkdtemp(prefix="tl-")
    try:
        ray.init(
            address="local",  # Without it Ray would join any cluster it finds on this machine.
            num_cpus=num_cpus,
            include_dashboard=False,
            logging_level=logging.WARNING,
            log_to_driver=False,  # What workers have to say to people comes as errors or files.
            _temp_dir=folder,
        )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
