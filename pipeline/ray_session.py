"""Joins or starts the Ray cluster that a stage runs on, and leaves it as it was found."""

import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.config import RaySettings


@contextmanager
def ray_session(settings: RaySettings) -> Iterator[None]:
    """Connect to Ray for the length of the block; stop only a cluster that was started here.

    Inside a submitted job (Ray sets ``RAY_ADDRESS``) or with ``settings.address`` the
    running cluster is joined; otherwise one is started on this machine, without dashboard,
    and its files are removed at the end. Nested calls reuse the outer connection.
    Ray 2.60 turns a loopback node address into the machine's own, so a local cluster's
    internal ports can be reached from its network. The caller's handler of SIGTERM, which
    Ray would replace, stays in force.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's C++ part would answer SIGTERM with a stack trace and end the process on the spot.
    # Workers that crash still print Python's own trace.
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
    address = settings.address or os.environ.get("RAY_ADDRESS")
    if not address:
        _demand_own_token()
    import ray

    if ray.is_initialized():
        yield
        return
    if address:
        with _stop_signals_wait():
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
        with _stop_signals_wait():
            ray.init(
                address="local",  # Without it Ray would join any cluster it finds here.
                num_cpus=num_cpus,
                include_dashboard=False,
                logging_level=logging.WARNING,
                log_to_driver=False,  # What workers have to say comes as errors or files.
                # Ray opens its folder to all users of the machine; ours around it stays closed.
                _temp_dir=os.path.join(folder, "r"),
            )
        yield
    finally:
        try:
            ray.shutdown()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _stop_signals_wait() -> Iterator[None]:
    """Hold signals to stop back until the block ends, then hand them to their own handlers.

    A Ray that is interrupted half started cannot be shut down: it leaves its processes and
    crashes as Python exits. Only a second Ctrl-C is not held back.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    own = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread():
        own = {}  # Signals are none of another thread's business, nor does Ray touch them there.
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if held.count(number) and number == signal.SIGINT:
            own[signal.SIGINT](number, frame)
        held.append(number)

    with _keep_from_ray(is_ours=signal.SIGTERM in own):
        for number in own:
            signal.signal(number, hold)
        try:
            yield
        finally:
            for number, handler in own.items():
                signal.signal(number, handler)
    for waiting in held:
        own[signal.Signals(waiting)](waiting, None)


@contextmanager
def _keep_from_ray(*, is_ours: bool) -> Iterator[None]:
    """Change what ``ray.init`` does to signals; Ray 2.60 has no settings for it.

    It replaces the handler of SIGTERM, here only where nobody has one. The processes that it
    starts get a group of their own: `timeout` and closed terminals signal a whole group, and
    the loss of Ray's processes ends this one before it can clean up.
    """
    from ray._private import utils

    set_handler = utils.set_sigterm_handler
    die_with_parent: Callable[[], None] = utils.set_kill_on_parent_death_linux

    def stand_apart() -> None:
        os.setpgid(0, 0)
        die_with_parent()

    if is_ours:
        utils.set_sigterm_handler = lambda _handler: None
    utils.set_kill_on_parent_death_linux = stand_apart
    try:
        yield
    finally:
        utils.set_sigterm_handler = set_handler
        utils.set_kill_on_parent_death_linux = die_with_parent
