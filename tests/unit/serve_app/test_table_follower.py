"""How an ingress takes up routing tables, with a desk and lanes that the test plays."""

import asyncio
import logging
from dataclasses import replace

import pytest
from bundles import write_tiny_bundle
from test_release_shadow import load

from pipeline.contract.errors import FolderError, NotReadyError
from serve_app.admission import Admission
from serve_app.release import table_follower
from serve_app.release.routing import RoutingTable, ServedVersion
from serve_app.release.shadow import ShadowRunner
from serve_app.release.table_follower import DeskLine, TableFollower
from serve_app.release.traffic import TrafficLog
from serve_app.request_record import RequestRecord
from serve_app.versions import Untold, Versions

BASE = ServedVersion(version="v1", bundle="/1", app_name=None)
OTHER = ServedVersion(version="v2", bundle="/2", app_name="two")
ALONE = RoutingTable(number=1, stable=BASE)
SPLIT = RoutingTable(number=2, stable=BASE, candidate=OTHER, weight=1.0, salt="s")


@pytest.fixture
def rig(tmp_path, monkeypatch):
    monkeypatch.setattr(table_follower, "PERIOD_S", 0.001)
    monkeypatch.setattr(table_follower, "FIRST_TABLE_S", 0.01)
    return Rig(write_tiny_bundle(tmp_path / "bundle").folder)


class Rig:
    """A follower, and everything that it talks to."""

    def __init__(self, folder):
        self.known = {place: load(folder, place.version)[0] for place in (BASE, OTHER)}
        self.table, self.stored = ALONE, ALONE
        self.unreachable = set()
        self.reports, self.kept = [], []
        self.versions = Versions(self.known[BASE].service, split=Untold())
        self.log = TrafficLog(predict_paths=("/",))
        self.follower = TableFollower(
            self.versions,
            line=DeskLine(
                exchange=self.exchange,
                read_stored=self.read_stored,
                load=self.load,
                forget_others=lambda kept: self.kept.append({one.version for one in kept}),
            ),
            reporter="one",
            log=self.log,
            shadows=ShadowRunner(self.log, admission=Admission(most_wait_s=30.0)),
            logger=logging.getLogger("follower under test"),
        )

    async def exchange(self, report):
        self.reports.append(report)
        if self.table is None:
            raise TimeoutError
        return self.table

    def read_stored(self):
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored

    async def load(self, place):
        if place in self.unreachable:
            raise NotReadyError("no lanes")
        return self.known[place]

    def answering(self):
        record = RequestRecord(path="/", method="POST", request_id="r")
        split = self.versions.split
        return (self.versions.stable if split is None else split.choose(record)).version

    async def follow(self, *tables):
        """Start, then work by each of the desk's tables in turn; return who answers by each."""
        await self.follower.start()
        seen = [self.answering()]
        for table in tables:
            self.table = table
            await asyncio.sleep(0.02)
            seen.append(self.answering())
        await self.follower.stop()
        return seen


def test_nobody_is_answered_before_the_first_table(rig):
    with pytest.raises(NotReadyError, match="not said yet"):
        rig.answering()
    with pytest.raises(NotReadyError, match="not said yet"):
        asyncio.run(rig.versions.check())


def test_tables_are_worked_by_as_they_come_and_versions_are_let_go(rig):
    promoted = RoutingTable(number=3, stable=OTHER)

    assert asyncio.run(rig.follow(SPLIT, promoted)) == ["v1", "v2", "v2"]

    assert (rig.versions.stable_version(), rig.versions.split) == ("v2", None)
    assert rig.kept == [{"v1"}, {"v1", "v2"}, {"v2"}]
    assert {report.table_number for report in rig.reports} == {0, 1, 2, 3}


def test_an_older_table_is_passed_over(rig):
    rolled_back = RoutingTable(number=3, stable=BASE)

    assert asyncio.run(rig.follow(SPLIT, rolled_back, SPLIT)) == ["v1", "v2", "v1", "v1"]


def test_without_the_desk_the_last_table_holds_and_no_report_is_lost(rig):
    async def go():
        seen = await rig.follow(SPLIT, None)
        return seen, rig.reports

    seen, reports = asyncio.run(go())

    assert seen == ["v1", "v2", "v2"]
    unanswered = [report for report in reports if report.sequence == reports[-1].sequence]
    assert len(unanswered) > 1
    assert all(report is reports[-1] for report in unanswered)


def test_a_new_ingress_without_the_desk_works_by_what_it_stored(rig):
    rig.table, rig.stored = None, SPLIT

    assert asyncio.run(rig.follow()) == ["v2"]


def test_a_damaged_state_is_no_reason_to_guess(rig):
    rig.table, rig.stored = None, FolderError("damaged")

    async def go():
        await rig.follower.start()
        with pytest.raises(NotReadyError):
            rig.answering()
        rig.table = SPLIT
        await asyncio.sleep(0.02)
        await rig.follower.stop()

    asyncio.run(go())

    assert rig.answering() == "v2"


def test_a_candidate_that_cannot_be_reached_gets_no_request_until_it_can(rig):
    rig.unreachable = {OTHER}

    async def go():
        seen = await rig.follow(SPLIT)
        rig.unreachable = set()
        await rig.follower.apply(SPLIT)
        return [*seen, rig.answering()]

    assert asyncio.run(go()) == ["v1", "v1", "v2"]


def test_a_stable_version_that_cannot_be_reached_leaves_all_as_it_was(rig):
    rig.unreachable = {OTHER}
    promoted = RoutingTable(number=3, stable=OTHER)

    assert asyncio.run(rig.follow(promoted)) == ["v1", "v1"]
    assert rig.reports[-1].table_number == 1


def test_requests_are_counted_while_a_release_is_under_way(rig):
    async def go():
        states = [rig.log.is_open]
        for table in (ALONE, SPLIT, replace(ALONE, number=3)):
            await rig.follower.apply(table)
            states.append(rig.log.is_open)
        return states

    assert asyncio.run(go()) == [False, False, True, False]
