"""How an ingress works by the desk's routing table: asks each second, applies what is new."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass

from pipeline.contract.errors import NotReadyError, TextlaneError
from serve_app.release.answer_pairs import compare_answers
from serve_app.release.live_split import LoadedVersion, ReleaseSplit
from serve_app.release.report import IngressReport
from serve_app.release.routing import RoutingTable, ServedVersion
from serve_app.release.shadow import ShadowRunner
from serve_app.release.traffic import TrafficLog
from serve_app.versions import Versions

PERIOD_S = 1.0
"""Seconds between two exchanges with the desk."""
EXCHANGE_TIMEOUT_S = 2.0
"""Seconds after which the desk is taken for lost, this time."""
FIRST_TABLE_S = 5.0
"""Seconds that a new ingress tries the desk before it reads what the desk has stored."""
LOAD_TIMEOUT_S = 60.0
"""Seconds that a version's bundle and lanes may take."""


@dataclass(frozen=True, kw_only=True)
class DeskLine:
    """What a follower needs of the world outside."""

    exchange: Callable[[IngressReport], Awaitable[RoutingTable]]
    """Hands over a report; raises where the desk does not answer."""
    read_stored: Callable[[], RoutingTable]
    """Returns the table of the state that the desk stored last; a service without one is its
    base alone. Blocks; raises a FolderError where the state is there and damaged."""
    load: Callable[[ServedVersion], Awaitable[LoadedVersion]]
    """Opens a version and waits for its lanes; a TextlaneError says why that cannot be."""
    forget_others: Callable[[Collection[LoadedVersion]], None]
    """Is told which versions are still in use."""


class TableFollower:
    """Keeps the versions of one ingress as the desk has them."""

    def __init__(
        self,
        versions: Versions,
        *,
        line: DeskLine,
        reporter: str,
        log: TrafficLog,
        shadows: ShadowRunner,
        logger: logging.Logger,
    ) -> None:
        """Take what there is to keep.

        Args:
            versions: what requests are answered by.
            line: to the desk, its folder and the lanes.
            reporter: name of this replica in reports.
            log: what this ingress saw; open while a release is under way.
            shadows: runs texts on the version that did not answer.
            logger: is told of what changes and of what goes wrong.
        """
        self.loaded: dict[ServedVersion, LoadedVersion] = {}
        self._versions = versions
        self._line = line
        self._reporter = reporter
        self._log = log
        self._shadows = shadows
        self._logger = logger
        self._table: RoutingTable | None = None
        self._is_whole = True
        self._sequence = 0
        self._unsent: IngressReport | None = None
        self._task: asyncio.Task[None] | None = None
        self._said = ""

    async def start(self) -> None:
        """Get the first table, from the desk or from what it stored, and follow from then on."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + FIRST_TABLE_S
        table = await self._exchange()
        while table is None and loop.time() < until_s:
            await asyncio.sleep(PERIOD_S / 4)
            table = await self._exchange()
        table = table or await self._read_stored()
        if table is not None:  # Else it is not ready, and says so; the desk may come yet.
            await self.apply(table)
        # Not in the context of whatever happens to start it.
        self._task = loop.create_task(self._follow(), context=Context())

    async def stop(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            table = await self._exchange()
            if table is None and self._table is None:
                table = await self._read_stored()
            if table is not None:
                await self.apply(table)

    async def _read_stored(self) -> RoutingTable | None:
        try:
            return await asyncio.to_thread(self._line.read_stored)
        except TextlaneError as error:
            self._say(f"not ready: {error}")
            return None

    async def _exchange(self) -> RoutingTable | None:
        """Return the desk's table; None where it does not answer, and the report is kept."""
        if self._unsent is None:
            self._sequence += 1
            self._unsent = self._log.take_report(
                reporter=self._reporter,
                sequence=self._sequence,
                table_number=self._table.number if self._table else 0,
            )
        try:
            async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                table = await self._line.exchange(self._unsent)
        except Exception as error:
            # Whatever kept the desk from answering, requests go on by the last table.
            self._say(f"the release desk does not answer: {error!r}")
            return None
        self._unsent = None
        return table

    async def apply(self, table: RoutingTable) -> None:
        """Answer by a table from now on; an older one than the present is passed over.

        A candidate that this ingress cannot reach gets no traffic of it and is tried again; a
        stable version that it cannot reach leaves all as it was.
        """
        if self._table is not None and (
            table.number < self._table.number
            or (table.number == self._table.number and self._is_whole)
        ):
            return
        try:
            stable = await self._load(table.stable)
        except TextlaneError as error:
            self._say(f"table {table.number} cannot be followed: {error}")
            return
        candidate = None
        if table.candidate is not None:
            try:
                candidate = await self._load(table.candidate)
            except TextlaneError as error:
                self._say(f"no request goes to {table.candidate.version}: {error}")
        self._take(table, stable=stable, candidate=candidate)

    def _take(
        self, table: RoutingTable, *, stable: LoadedVersion, candidate: LoadedVersion | None
    ) -> None:
        self._versions.stable = stable.service
        self._versions.split = (
            None
            if candidate is None
            else ReleaseSplit(
                table,
                stable=stable,
                candidate=candidate,
                shadows=self._shadows,
                profiles=self._log.profiles,
                compare=compare_answers,
            )
        )
        self._log.is_open = table.candidate is not None
        self._table = table
        self._is_whole = (candidate is None) == (table.candidate is None)
        named = {table.stable, table.candidate}
        self.loaded = {place: one for place, one in self.loaded.items() if place in named}
        self._line.forget_others(self.loaded.values())
        if self._is_whole:
            self._say(_describe(table))

    async def _load(self, place: ServedVersion) -> LoadedVersion:
        if place not in self.loaded:
            try:
                async with asyncio.timeout(LOAD_TIMEOUT_S):
                    self.loaded[place] = await self._line.load(place)
            except TimeoutError:
                raise NotReadyError("its lanes do not answer", value=place.app_name) from None
        return self.loaded[place]

    def _say(self, line: str) -> None:
        # What goes wrong does so each second; once is enough.
        if line != self._said:
            self._said = line
            self._logger.warning(line)


def _describe(table: RoutingTable) -> str:
    line = f"routing table {table.number}: {table.stable.version} answers"
    if table.candidate is None:
        return line
    return f"{line}, {table.candidate.version} {table.weight:.1%} of the keys"
