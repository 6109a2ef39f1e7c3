"""A release desk on a folder, with lanes and a clock that the test plays."""

import logging

import pytest
from bundles import Variant, write_tiny_bundle

from pipeline.contract.errors import (
    NotReadyError,
)
from serve_app.config import ServeSettings
from serve_app.release.desk import Desk, DeskPlace
from serve_app.release.evidence_keeper import Opened
from serve_app.release.lane_keeper import LanesState
from serve_app.release.report import IngressReport, TrafficCell
from serve_app.release.routing import ServedVersion
from serve_app.release.store import ReleaseStore
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
