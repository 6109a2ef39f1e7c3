"""The desk with lanes and ingresses that the test plays: what it decides, keeps and hands out."""

import asyncio
import logging
from dataclasses import replace

import pytest
from bundles import MULTI_LABEL, Variant, write_tiny_bundle

from pipeline.contract.errors import (
    ConfigError,
    FolderError,
    MissingFileError,
    NotReadyError,
    ReleaseConflictError,
)
from serve_app.config import ServeSettings
from serve_app.release.desk import DRAIN_S, HEARD_S, START_TIMEOUT_S, Desk, DeskPlace
from serve_app.release.evidence_keeper import SAVE_EVERY_S, Opened
from serve_app.release.lane_keeper import RETRY_S, LaneKeeper, LanesState
from serve_app.release.report import IngressReport, TrafficCell
from serve_app.release.routing import ServedVersion
from serve_app.release.store import ReleaseStore
from serve_app.release.stored_table import read_stored_table
from serve_app.served import open_served

PLAN = {
    "settle_s": 0,
    "steps": [{"weight": 0.3, "dwell_s": 60}, {"weight": 0.6, "dwell_s": 60}],
    "shadow": {"share": 0.5, "keeps_texts": True},
}
LOGGER = logging.getLogger("desk under test")


class FakeLanes:
    """Lanes that are as the test says; keeps what was started and ended."""

    def __init__(self):
        self.states = {}
        self.started, self.ended = [], []
        self.failure = None
        self.num_reads = 0

    async def start(self, place):
        if self.failure is not None:
            raise self.failure
        self.started.append(place)
        self.states[place.app_name] = LanesState(status="starting", num_missing=2)

    async def end(self, app_name):
        self.ended.append(app_name)
        del self.states[app_name]

    async def read(self):
        self.num_reads += 1
        if isinstance(self.failure, NotReadyError):
            raise self.failure
        return self.states

    def run(self):
        for name in self.states:
            self.states[name] = LanesState(status="running", num_running=2)


def open_bundle(folder):
    served = open_served(ServeSettings(bundle=str(folder)))
    return Opened(
        version=served.version,
        folder=str(served.bundle.folder),
        manifest=served.bundle.manifest,
    )


class Office:
    """A desk on a folder, with a clock; may be left and taken up again."""

    def __init__(self, folder):
        self.folder = folder
        self.base = open_bundle(write_tiny_bundle(folder / "v1").folder)
        variant = Variant(weight=4.2)
        self.other = open_bundle(write_tiny_bundle(folder / "v2", variant=variant).folder)
        self.now = 1_000.0
        self.lanes = FakeLanes()
        self.store = ReleaseStore(folder / "release")
        self.seen = []
        self.sequence = 0
        self.take_up()

    def take_up(self, base=None):
        base = base or self.base
        self.desk = Desk(
            DeskPlace(
                base=ServedVersion(version=base.version, bundle=base.folder, app_name=None),
                app_name="textlane",
                store=self.store,
                runner=self.lanes,
                open_bundle=open_bundle,
                observe=lambda state, decision: self.seen.append((state, decision)),
                logger=LOGGER,
                clock=lambda: self.now,
            )
        )

    def table(self, *, number=None, cells=(), reporter="one"):
        self.sequence += 1
        number = self.desk._table.number if number is None else number
        report = IngressReport(
            reporter=reporter, sequence=self.sequence, table_number=number, cells=cells
        )
        return self.desk.exchange(report)

    async def look(self, seconds=1.0):
        self.now += seconds
        await self.desk.tick()

    async def run_candidate(self, plan=PLAN):
        await self.desk.start(self.other.folder, plan=plan)
        await self.look()
        self.lanes.run()
        await self.look()


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path)


def failing(version, num=100):
    return [
        TrafficCell(
            version=version, lane="short", num_requests=num, num_errors=num, latencies_ms=[]
        )
    ]


def test_without_a_release_the_base_answers_and_nothing_is_started(office):
    asyncio.run(office.look())

    table = office.table()
    assert (table.stable.version, table.candidate, table.weight) == (office.base.version, None, 0.0)
    assert (office.lanes.started, office.lanes.ended) == ([], [])
    assert asyncio.run(office.desk.status()).state == "none"


def test_a_candidate_has_no_traffic_until_its_lanes_run(office):
    async def go():
        status = await office.desk.start(office.other.folder, plan=PLAN)
        await office.look()
        before = office.table()
        office.lanes.run()
        await office.look()
        return status, before, office.table()

    status, before, after = asyncio.run(go())

    assert status.state == "starting"
    assert [place.version for place in office.lanes.started] == [office.other.version]
    assert before.candidate is None
    assert (after.candidate.version, after.weight, after.number) == (office.other.version, 0.3, 2)
    assert (after.shadow_share, after.keeps_texts) == (0.5, True)
    assert after.candidate.app_name.startswith("textlane-")


@pytest.mark.parametrize("how", ["failed", "late", "refused"])
def test_lanes_that_do_not_start_end_the_release(office, how):
    async def go():
        if how == "refused":
            office.lanes.failure = FolderError("altered")
        await office.desk.start(office.other.folder, plan=PLAN)
        await office.look()
        if how == "failed":
            (name,) = office.lanes.states
            office.lanes.states[name] = LanesState(status="failed", message="no room")
        await office.look(START_TIMEOUT_S + 1 if how == "late" else 1.0)
        office.lanes.failure = None
        await office.look(DRAIN_S + HEARD_S)
        return await office.desk.status()

    status = asyncio.run(go())

    assert status.state == "failed_to_start"
    assert {"failed": "no room", "late": "not within", "refused": "altered"}[how] in status.reason
    assert office.table().candidate is None
    assert office.lanes.states == {}


def test_an_error_burst_takes_the_traffic_away_and_then_the_lanes(office):
    async def go():
        await office.run_candidate()
        office.table(cells=failing(office.other.version))
        await office.look()
        rolled_back = office.table()
        await office.look()
        kept = list(office.lanes.states)
        office.table(number=rolled_back.number - 1)
        await office.look(DRAIN_S)
        still_kept = list(office.lanes.states)
        office.table()
        await office.look()
        return rolled_back, kept, still_kept, await office.desk.status()

    rolled_back, kept, still_kept, status = asyncio.run(go())

    assert rolled_back.candidate is None
    assert (status.state, status.rollback.decided_by) == ("rolled_back", "hard_limit")
    assert kept == still_kept != []
    assert (len(office.lanes.ended), office.lanes.states) == (1, {})
    (past,) = asyncio.run(office.desk.history()).releases
    assert past.state == "rolled_back"
    assert office.seen[-1][0].last.reason == status.reason


def test_a_desk_that_was_killed_goes_on_where_it_was(office):
    async def go():
        await office.run_candidate()
        good = TrafficCell(
            version=office.other.version,
            lane="short",
            num_requests=5,
            num_errors=0,
            latencies_ms=[1.0] * 5,
        )
        office.table(cells=[good])
        await office.look(SAVE_EVERY_S)
        before = office.table()
        office.take_up()
        await office.look()
        return before, office.table(), await office.desk.status()

    before, after, status = asyncio.run(go())

    assert before == after
    assert (status.state, status.weight) == ("running", 0.3)
    assert [one.num_requests for one in status.traffic] == [5]
    base = ServedVersion(version=office.base.version, bundle=office.base.folder, app_name=None)
    assert read_stored_table(office.store.folder, base) == before
    assert len(office.lanes.started) == 1


def test_a_rolled_back_version_stays_away_over_a_restart(office):
    async def go():
        await office.run_candidate()
        await office.desk.abort()
        office.take_up()
        await office.look(HEARD_S + DRAIN_S)
        return office.table(), await office.desk.status()

    table, status = asyncio.run(go())

    assert (table.candidate, status.state) == (None, "aborted")
    assert office.lanes.states == {}


def test_promotion_keeps_the_candidate_s_lanes_until_the_serve_file_names_it(office):
    async def go():
        await office.run_candidate()
        await office.desk.promote()
        await office.look(DRAIN_S + HEARD_S)
        promoted, kept = office.table(), list(office.lanes.states)
        office.take_up(base=office.other)
        await office.look(DRAIN_S + HEARD_S)
        return promoted, kept, office.table()

    promoted, kept, renamed = asyncio.run(go())

    assert (promoted.stable.version, promoted.candidate) == (office.other.version, None)
    assert kept == [promoted.stable.app_name]
    assert (renamed.stable.version, renamed.stable.app_name) == (office.other.version, None)
    assert renamed.number > promoted.number
    assert office.lanes.states == {}


def test_pause_holds_and_resume_goes_on(office):
    async def go():
        await office.run_candidate()
        paused = await office.desk.pause()
        return paused, await office.desk.resume()

    paused, resumed = asyncio.run(go())

    assert (paused.state, paused.weight, resumed.state) == ("paused", 0.3, "running")


def test_what_cannot_be_started_is_refused_and_changes_nothing(office, tmp_path):
    other_kind = write_tiny_bundle(tmp_path / "many", task=MULTI_LABEL).folder
    refused = [
        (str(tmp_path / "nothing"), None, MissingFileError),
        (str(other_kind), None, FolderError),
        (office.base.folder, None, ReleaseConflictError),
        (office.other.folder, {"step": 1}, ConfigError),
    ]
    for bundle, plan, kind in refused:
        with pytest.raises(kind):
            asyncio.run(office.desk.start(bundle, plan=plan))
    for action in (office.desk.pause, office.desk.resume, office.desk.promote, office.desk.abort):
        with pytest.raises(ReleaseConflictError):
            asyncio.run(action())

    assert asyncio.run(office.desk.status()).state == "none"


def test_a_second_release_waits_for_the_end_of_the_first(office):
    async def go():
        await office.run_candidate()
        await office.desk.start(office.other.folder, plan=PLAN)

    with pytest.raises(ReleaseConflictError, match="under way"):
        asyncio.run(go())


def test_an_ingress_with_a_higher_table_gets_one_above_it(office):
    async def go():
        office.table(number=7)
        await office.look()
        return office.table()

    assert asyncio.run(go()).number == 8


def test_lanes_are_left_alone_while_ray_serve_cannot_tell(office):
    async def go():
        await office.desk.start(office.other.folder, plan=PLAN)
        office.lanes.failure = NotReadyError("no controller")
        await office.look()
        waiting = await office.desk.status()
        office.lanes.failure = None
        await office.look()
        return waiting, office.lanes.started

    waiting, started = asyncio.run(go())

    assert waiting.state == "starting"
    assert len(started) == 1


class FullStore(ReleaseStore):
    """Refuses to write while it is full."""

    is_full = False

    def write_state(self, state):
        if self.is_full:
            raise FolderError("no room")
        super().write_state(state)


def test_a_full_disk_keeps_a_promotion_back_but_no_rollback(office):
    office.store = FullStore(office.folder / "full")
    office.take_up()

    async def go():
        await office.run_candidate()
        office.store.is_full = True
        with pytest.raises(NotReadyError, match="no room"):
            await office.desk.promote()
        still = office.table()
        office.table(cells=failing(office.other.version))
        await office.look()
        rolled_back = office.table()
        office.store.is_full = False
        await office.look()
        return still, rolled_back

    still, rolled_back = asyncio.run(go())

    assert still.candidate is not None
    assert rolled_back.candidate is None
    assert office.store.read_state().release is None


def test_replicas_that_died_are_told_from_lanes_that_shrink_and_a_new_controller():
    keeper = LaneKeeper(FakeLanes(), logger=LOGGER)
    whole = LanesState(status="running", num_running=3)
    seen = [
        whole,
        replace(whole, num_running=2, num_missing=1),
        whole,
        replace(whole, num_running=2),
        replace(whole, num_running=0),
        replace(whole, num_running=2),
    ]

    deaths = [keeper.count_deaths({"a": state}, "a") for state in seen]

    assert deaths == [0, 1, 0, 0, 0, 0]
    assert keeper.count_deaths({}, "a") == 0


def test_lanes_of_the_stable_version_that_fail_are_started_again_after_a_while():
    lanes = FakeLanes()
    keeper = LaneKeeper(lanes, logger=LOGGER)
    place = ServedVersion(version="v", bundle="/b", app_name="a")

    async def go():
        for now in (0.0, 1.0, RETRY_S):
            await keeper.keep([place], now=now, may_end=False)
            lanes.states["a"] = LanesState(status="failed")

    asyncio.run(go())

    assert lanes.started == [place, place]


def test_ray_serve_is_asked_seldom_while_no_version_has_lanes_of_its_own():
    lanes = FakeLanes()
    lanes.states["left"] = LanesState(status="running", num_running=2)
    keeper = LaneKeeper(lanes, logger=LOGGER)
    place = ServedVersion(version="v", bundle="/b", app_name="a")

    async def go():
        for now in range(10):
            await keeper.keep([], now=float(now), may_end=True)
        asked = [lanes.num_reads]
        for wanted, now in ([], RETRY_S + 5.0), ([place], RETRY_S + 6.0), ([place], RETRY_S + 7.0):
            await keeper.keep(wanted, now=now, may_end=True)
            asked.append(lanes.num_reads)
        return asked

    assert asyncio.run(go()) == [2, 3, 4, 5]
    assert (lanes.ended, lanes.started) == (["left"], [place])
