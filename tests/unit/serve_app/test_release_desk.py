"""The desk with lanes and ingresses that the test plays: what it decides, keeps and hands out."""

import asyncio

import pytest
from bundles import MULTI_LABEL, write_tiny_bundle
from release_office import PLAN, failing

from pipeline.contract.errors import (
    ConfigError,
    FolderError,
    MissingFileError,
    NotReadyError,
    ReleaseConflictError,
)
from serve_app.release.desk import DRAIN_S, HEARD_S, START_TIMEOUT_S
from serve_app.release.evidence_keeper import SAVE_EVERY_S
from serve_app.release.lane_keeper import LanesState
from serve_app.release.report import TrafficCell
from serve_app.release.routing import ServedVersion
from serve_app.release.store import ReleaseStore
from serve_app.release.stored_table import read_stored_table


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
