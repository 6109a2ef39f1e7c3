"""The routing table of the state that the desk stored last."""

import time
from pathlib import Path

from serve_app.release.routing import RoutingTable, ServedVersion
from serve_app.release.state import ReleaseState, new_state, reconcile_base, routing_table
from serve_app.release.store import ReleaseStore


def read_stored_table(folder: Path, base: ServedVersion) -> RoutingTable:
    """Return who answers by a release folder; of a folder without a state the base alone.

    Args:
        folder: of the desk.
        base: the version that the application was built with.

    Raises:
        FolderError: (or a subtype) the state is there and cannot be read. To go on with the base
            would be a guess.
    """
    state = ReleaseStore(folder).read_state()
    return routing_table(state_for(state, base, at=time.time()))


def state_for(state: ReleaseState | None, base: ServedVersion, *, at: float) -> ReleaseState:
    """Return the state in which a service with this base begins.

    Args:
        state: the stored one; None: there never was one.
        base: the version that the application was built with.
        at: seconds since 1970.
    """
    return new_state(base) if state is None else reconcile_base(state, base, at=at)
