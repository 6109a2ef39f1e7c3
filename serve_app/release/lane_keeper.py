"""Which lanes of releases are to run: starts what is missing, ends what nobody asks any more."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from serve_app.release.routing import ServedVersion

RETRY_S = 30.0
"""Seconds after which lanes that did not start are started again."""


@dataclass(frozen=True, kw_only=True)
class LanesState:
    """How the lanes of one version stand."""

    status: Literal["starting", "running", "failed", "ending"]
    message: str = ""
    """What Ray Serve says where they failed."""
    num_running: int = 0
    """Replicas."""
    num_missing: int = 0
    """Replicas that are not running and shall."""


class LaneRunner(Protocol):
    """Starts and ends lanes; each has a name of its own."""

    async def start(self, place: ServedVersion) -> None:
        """Have the lanes of a version started; return without waiting for them.

        Raises:
            TextlaneError: that is refused, such as for a bundle that is gone.
        """
        ...

    async def end(self, app_name: str) -> None:
        """Have lanes ended; what they do is finished first."""
        ...

    async def read(self) -> Mapping[str, LanesState]:
        """Return all lanes of releases, by their application's name."""
        ...


class LaneKeeper:
    """Brings the lanes that run to those that are wanted, over and over."""

    def __init__(self, runner: LaneRunner, *, logger: logging.Logger) -> None:
        """Take what starts and ends lanes."""
        self._runner = runner
        self._logger = logger
        self._started_at: dict[str, float] = {}
        self._known: dict[str, LanesState] = {}
        self._found_none_at = float("-inf")

    async def keep(
        self, wanted: Sequence[ServedVersion], *, now: float, may_end: bool
    ) -> Mapping[str, LanesState]:
        """Return how lanes stand, after starting and ending what is to be.

        Args:
            wanted: versions with an application of their own.
            now: seconds.
            may_end: whether every ingress has been told to ask the others no more.
        """
        # Ray Serve builds its whole state to answer, each second for ever. Nobody but a keeper
        # starts lanes, and after a restart the first look finds what is left.
        if not wanted and now - self._found_none_at < RETRY_S:
            return {}
        states = dict(await self._runner.read())
        self._found_none_at = float("-inf") if wanted or states else now
        names = {place.app_name for place in wanted}
        for place in wanted:
            assert place.app_name is not None
            state = states.get(place.app_name)
            is_due = now - self._started_at.get(place.app_name, float("-inf")) >= RETRY_S
            if (state is None or state.status == "failed") and is_due:
                self._logger.warning("the lanes of %s are started", place.version)
                self._started_at[place.app_name] = now
                await self._runner.start(place)
        for name in states.keys() - names:
            if may_end and states[name].status != "ending":
                self._logger.warning("the lanes of %s are ended", name)
                self._started_at.pop(name, None)
                await self._runner.end(name)
        return states

    def count_deaths(self, states: Mapping[str, LanesState], app_name: str) -> int:
        """Return how many replicas died since the last look; a lane that shrinks loses none."""
        state, before = states.get(app_name), self._known.get(app_name)
        if state is not None:
            self._known = {app_name: state}
        if state is None or before is None:
            return 0
        lost = before.num_running - state.num_running
        return max(0, min(lost, state.num_missing - before.num_missing))
