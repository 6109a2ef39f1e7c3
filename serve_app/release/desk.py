"""The release desk: keeps the state of releases, decides each second, and hands out tables; no Ray.

Whatever it decides is stored before an ingress hears of it, so that a desk that is killed goes
on where it was. Only a rollback is handed out even where it cannot be stored: a full disk must
not keep a bad candidate in traffic.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.contract.errors import FolderError, NotReadyError, ReleaseConflictError, TextlaneError
from serve_app.release.check_tracks import CheckTracks
from serve_app.release.decide import Decision, collect_findings, decide, measure_drift
from serve_app.release.desk_figures import show_drift, show_shadow, show_traffic
from serve_app.release.evidence_keeper import BundleShelf, EvidenceKeeper, Opened
from serve_app.release.lane_keeper import LaneKeeper, LaneRunner, LanesState
from serve_app.release.plan import plan_from_mapping
from serve_app.release.record import Findings, Outcome, describe_record
from serve_app.release.report import IngressReport
from serve_app.release.routing import RoutingTable, ServedVersion
from serve_app.release.showing import LiveFigures, show_history, show_state
from serve_app.release.state import (
    Phase,
    ReleaseState,
    end_release,
    note_deployed,
    pause_release,
    promote_release,
    resume_release,
    routing_table,
    start_release,
)
from serve_app.release.status import ReleaseHistory, ReleaseStatus
from serve_app.release.store import ReleaseStore
from serve_app.release.stored_table import state_for

HEARD_S = 10.0
"""Seconds after which an ingress that reports no more is gone; its requests are over as well."""
DRAIN_S = 3.0
"""Seconds after a change before lanes are ended, beside all ingresses knowing of it."""
START_TIMEOUT_S = 300.0
"""Seconds that a candidate's lanes may take to start, as long as `textlane serve` waits."""
_BY_HAND = "by hand"


@dataclass(frozen=True, kw_only=True)
class DeskPlace:
    """What a desk works with."""

    base: ServedVersion
    app_name: str
    """Of the service; lanes of candidates are named after it."""
    store: ReleaseStore
    runner: LaneRunner
    open_bundle: Callable[[str], Opened]
    """Opens a folder's bundle, every byte checked; blocks. Raises FolderError or ConfigError."""
    observe: Callable[[ReleaseState, Decision], None]
    """Is told of each look, for metrics."""
    logger: logging.Logger
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""


class Desk:
    """One for a service; a ``ReleaseDeskDoor``. Used from one event loop."""

    def __init__(self, place: DeskPlace) -> None:
        """Take up what is stored.

        Raises:
            FolderError: (or a subtype) the stored state cannot be read; the desk must not begin
                afresh over it.
        """
        self._place = place
        self._clock, self._logger = place.clock, place.logger
        self._keeper = LaneKeeper(place.runner, logger=place.logger)
        now = self._clock()
        stored = place.store.recover()
        self._state = state_for(stored, place.base, at=now)
        self._table = routing_table(self._state)
        self._is_stored = stored is self._state
        self._changed_at = now
        self._heard: dict[str, tuple[float, int]] = {}
        self._shelf = BundleShelf(place.open_bundle)
        self._evidence = EvidenceKeeper(place.store, shelf=self._shelf, logger=place.logger)
        self._findings = Findings()
        self._tracks = CheckTracks()
        self._lock = asyncio.Lock()

    def exchange(self, report: IngressReport) -> RoutingTable:
        """Take an ingress's report and return who answers from now on."""
        now = self._clock()
        self._heard[report.reporter] = (now, report.table_number)
        if (evidence := self._evidence.now) is not None:
            evidence.add(report, at=now)
        return self._table

    async def tick(self) -> None:
        """Look at everything once: decide, and bring the lanes to what the state wants."""
        async with self._lock:
            now = self._clock()
            await self._outnumber(now)
            await self._evidence.follow(self._state)
            evidence = self._evidence.now
            profiles = self._shelf.profiles()
            decision = decide(self._state, evidence, now=now, profiles=profiles)
            if decision.results and evidence is not None:
                self._findings = collect_findings(
                    evidence,
                    decision.results,
                    hard_limit=decision.hard_limit,
                    profiles=profiles,
                )
                self._tracks.observe(decision.results, at_s=now)
            if decision.state is not self._state or not self._is_stored:
                await self._change(decision.state, now=now)
            self._evidence.save(now)
            self._place.observe(self._state, decision)
        await self._keep_lanes()

    async def start(self, bundle: str, *, plan: Mapping[str, Any] | None) -> ReleaseStatus:
        """Start a release; see ``ReleaseDeskDoor``."""
        given = plan_from_mapping(plan or {}, source="plan")
        if self._state.release is not None:
            raise ReleaseConflictError(
                "a release is under way",
                value=self._state.release.candidate.version,
                remedy="Wait for its end, or abort it.",
            )
        opened = await self._shelf.open(bundle)
        _demand_same_kind(opened, await self._shelf.open(self._state.stable.bundle))
        async with self._lock:
            now = self._clock()
            release_id = (
                f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(3)}"
            )
            digest = hashlib.blake2b(f"{release_id} {opened.version}".encode(), digest_size=4)
            candidate = ServedVersion(
                version=opened.version,
                bundle=opened.folder,
                app_name=f"{self._place.app_name}-{digest.hexdigest()}",
            )
            state = start_release(
                self._state, release_id=release_id, candidate=candidate, plan=given, at=now
            )
            await self._change(state, now=now)
            self._tracks, self._findings = CheckTracks(), Findings()
        return await self.status()

    async def pause(self) -> ReleaseStatus:
        """Hold the weight; see ``ReleaseDeskDoor``."""
        return await self._act(lambda state, now: pause_release(state, at=now))

    async def resume(self) -> ReleaseStatus:
        """Go on after a pause; see ``ReleaseDeskDoor``."""
        return await self._act(lambda state, now: resume_release(state, at=now))

    async def promote(self) -> ReleaseStatus:
        """Make the candidate stable now; see ``ReleaseDeskDoor``."""
        return await self._act(
            lambda state, now: promote_release(
                state, at=now, reason=_BY_HAND, findings=self._findings
            )
        )

    async def abort(self) -> ReleaseStatus:
        """Give all traffic back now; see ``ReleaseDeskDoor``."""
        return await self._act(
            lambda state, now: end_release(
                state, Outcome.ABORTED, at=now, reason=_BY_HAND, findings=self._findings
            )
        )

    async def status(self) -> ReleaseStatus:
        """Return how the release stands."""
        now, release, evidence = self._clock(), self._state.release, self._evidence.now
        live = LiveFigures(
            findings=self._findings,
            num_ingresses=len(self._present(now)),
            traffic=show_traffic(evidence) if evidence else (),
            shadow=show_shadow(release.plan, evidence) if release and evidence else None,
            tracks=self._tracks.view(),
            drift=show_drift(measure_drift(evidence, self._shelf.profiles())) if evidence else (),
        )
        return show_state(self._state, live, now_s=now)

    async def history(self) -> ReleaseHistory:
        """Return the finished releases, the newest first."""
        return show_history(await asyncio.to_thread(self._place.store.read_history))

    async def _act(
        self, transition: Callable[[ReleaseState, float], ReleaseState]
    ) -> ReleaseStatus:
        async with self._lock:
            now = self._clock()
            await self._change(transition(self._state, now), now=now)
        return await self.status()

    async def _change(self, state: ReleaseState, *, now: float) -> None:
        """Store a state and work by it.

        Raises:
            NotReadyError: it cannot be stored; all is as before.
        """
        is_end = state.last is not self._state.last and state.last is not None
        is_rollback = is_end and state.last is not None and state.last.outcome != Outcome.PROMOTED
        try:
            await asyncio.to_thread(self._place.store.write_state, state)
            self._is_stored = True
        except FolderError as error:
            if not is_rollback and self._is_stored:
                raise NotReadyError(str(error)) from error
            self._logger.error("the state is not stored and will be lost with the desk: %s", error)
            self._is_stored = False
        if state is not self._state:
            self._changed_at = now
        self._state, self._table = state, routing_table(state)
        await self._evidence.follow(state)
        if is_end and state.last is not None:
            self._logger.warning("%s", describe_record(state.last))

    async def _outnumber(self, now: float) -> None:
        """See to it that no ingress takes the present table for an old one."""
        highest = max((number for _, number in self._present(now).values()), default=0)
        if highest > self._state.table_number:
            await self._change(replace(self._state, table_number=highest + 1), now=now)

    def _present(self, now: float) -> dict[str, tuple[float, int]]:
        present = {name: one for name, one in self._heard.items() if now - one[0] <= HEARD_S}
        self._heard = present
        return present

    async def _keep_lanes(self) -> None:
        now, release = self._clock(), self._state.release
        present = self._present(now).values()
        all_know = all(number >= self._state.table_number for _, number in present)
        wanted = [self._state.stable, *([release.candidate] if release else [])]
        try:
            lanes = await self._keeper.keep(
                [place for place in wanted if place.app_name is not None],
                now=now,
                may_end=all_know and now - self._changed_at >= DRAIN_S,
            )
        except NotReadyError as error:
            self._logger.warning("lanes are as they were: %s", error)
            return
        except TextlaneError as error:
            self._logger.error("lanes cannot be started or ended: %s", error)
            lanes = {}
            if release is not None and release.phase is Phase.DEPLOYING:
                await self._fail_to_start(str(error))
        await self._heed(lanes)

    async def _heed(self, lanes: Mapping[str, LanesState]) -> None:
        release, now = self._state.release, self._clock()
        if release is None or release.candidate.app_name is None:
            return
        state = lanes.get(release.candidate.app_name)
        deaths = self._keeper.count_deaths(lanes, release.candidate.app_name)
        if release.phase is not Phase.DEPLOYING:
            self._evidence.note_deaths(deaths, at=now)
            return
        if state is not None and state.status == "running":
            async with self._lock:
                if self._state.release is release:
                    await self._change(note_deployed(self._state, at=now), now=now)
        elif state is not None and state.status == "failed":
            await self._fail_to_start(state.message)
        elif now - release.started_at > START_TIMEOUT_S:
            message = state.message if state else "nothing of them runs"
            await self._fail_to_start(f"not within {START_TIMEOUT_S:.0f} s: {message}")

    async def _fail_to_start(self, why: str) -> None:
        async with self._lock:
            now, release = self._clock(), self._state.release
            if release is not None and release.phase is Phase.DEPLOYING:
                reason = f"the candidate's lanes did not start: {why}"
                outcome = Outcome.FAILED_TO_START
                await self._change(
                    end_release(self._state, outcome, at=now, reason=reason), now=now
                )


def _demand_same_kind(candidate: Opened, stable: Opened) -> None:
    one, other = candidate.manifest, stable.manifest
    if (one.task, one.takes_pairs) != (other.task, other.takes_pairs):
        raise FolderError(
            "its answers are of another kind than the stable version's",
            place=candidate.folder,
            value=f"{one.task}, takes_pairs {one.takes_pairs}",
            remedy=f"Release a bundle for {other.task}, takes_pairs {other.takes_pairs}.",
        )
