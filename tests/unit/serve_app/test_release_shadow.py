"""Shadows: who is asked, what is compared, and what is dropped first."""

import asyncio

import numpy as np
import pytest
from bundles import MULTI_LABEL, TOKEN, write_tiny_bundle
from fakes import FakeLane

from pipeline.contract.errors import InferenceError, NotReadyError, OverloadedError
from serve_app.admission import Admission
from serve_app.config import ServeSettings
from serve_app.release.answer_pairs import NO_LABEL, compare_answers
from serve_app.release.live_split import LoadedVersion, ReleaseSplit
from serve_app.release.routing import RoutingTable, ServedVersion
from serve_app.release.shadow import MOST_IN_HAND, ShadowRunner, ShadowTarget
from serve_app.release.traffic import TrafficLog
from serve_app.request_record import RequestRecord
from serve_app.schemas import PredictRequest
from serve_app.served import open_served
from serve_app.service import PredictService

TABLE = RoutingTable(
    number=2,
    stable=ServedVersion(version="v1", bundle="/1", app_name=None),
    candidate=ServedVersion(version="v2", bundle="/2", app_name="two"),
    weight=0.5,
    salt="r1",
    shadow_share=1.0,
    shadow_texts_per_s=1000.0,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("shadow") / "bundle").folder


def load(folder, name, *, threshold=4.0, **settings):
    """A version whose lanes label by length: positive over ``threshold`` tokens."""
    served = open_served(ServeSettings(bundle=str(folder), **settings))
    encoder = served.bundle.load_text_encoder()
    lanes = {lane: FakeLane(threshold=threshold) for lane in ("short", "long")}
    service = PredictService(served, encoder=encoder, lanes=lanes)
    service.version = name
    return LoadedVersion(
        service=service, shadow=ShadowTarget(served=served, encoder=encoder, lanes=lanes)
    ), lanes


class Release:
    """Two versions, a log, and a split between them."""

    def __init__(self, folder, *, table=TABLE, clock=lambda: 0.0, **settings):
        self.log = TrafficLog(predict_paths=("/",))
        self.admission = Admission(most_wait_s=30.0)
        self.now = [0.0]
        self.stable, self.stable_lanes = load(folder, "v1", **settings)
        self.candidate, self.candidate_lanes = load(folder, "v2", threshold=6.0, **settings)
        self.runner = ShadowRunner(self.log, admission=self.admission, clock=lambda: self.now[0])
        self.now[0] += 1.0  # Time to earn a budget.
        self.split = ReleaseSplit(
            table,
            stable=self.stable,
            candidate=self.candidate,
            shadows=self.runner,
            profiles=self.log.profiles,
            compare=compare_answers,
        )

    async def ask(self, request, *, by="v1", request_id="r"):
        version = self.stable if by == "v1" else self.candidate
        record = RequestRecord(path="/", method="POST", request_id=request_id, version=by)
        prediction = await version.service.predict(request, record)
        self.split.after_answer(request, record, prediction)

    async def settle(self):
        while self.runner._tasks:
            await asyncio.gather(*self.runner._tasks)

    def run(self, *requests, by="v1"):
        async def go():
            for request in requests:
                await self.ask(request, by=by)
            await self.settle()

        asyncio.run(go())
        return self.log.take_report(reporter="one", sequence=1, table_number=2)


def test_a_text_is_run_on_the_other_version_and_compared(folder):
    release = Release(folder)

    # 5 tokens with the two special ones: one is positive, six are needed by the candidate.
    report = release.run(PredictRequest(text="good film is"))

    (seen,) = report.comparisons
    assert (seen.stable_label, seen.candidate_label, seen.is_flip) == ("positive", "negative", True)
    assert (seen.request_id, seen.lane, seen.num_tokens) == ("r", "short", 5)
    one, minus_one = 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))
    assert seen.shift == pytest.approx(one - minus_one)
    assert (seen.stable_score, seen.candidate_score) == pytest.approx((one, one))
    assert (seen.stable_ms, seen.candidate_ms, seen.text) == (2.5, 2.5, None)
    assert [row.is_shadow for row in release.candidate_lanes["short"].rows] == [True]
    assert [row.is_shadow for row in release.stable_lanes["short"].rows] == [False]


def test_an_answer_of_the_candidate_is_compared_the_other_way_round(folder):
    release = Release(folder)

    (seen,) = release.run(PredictRequest(text="good film is"), by="v2").comparisons

    assert (seen.stable_label, seen.candidate_label) == ("positive", "negative")
    assert [row.is_shadow for row in release.stable_lanes["short"].rows] == [True]


def test_texts_are_kept_only_where_the_table_says_so(folder):
    table = RoutingTable(**{**vars(TABLE), "keeps_texts": True})
    release = Release(folder, table=table)

    report = release.run(PredictRequest(texts=["good", "bad film"]))

    assert [one.text for one in report.comparisons] == ["good", "bad film"]


def test_only_a_share_of_the_requests_is_compared(folder):
    table = RoutingTable(**{**vars(TABLE), "shadow_share": 0.0})

    report = Release(folder, table=table).run(PredictRequest(text="good"))

    assert (report.comparisons, report.num_dropped_comparisons) == ([], 0)


def test_the_budget_of_texts_is_kept_and_the_rest_counted(folder):
    table = RoutingTable(**{**vars(TABLE), "shadow_texts_per_s": 3.0})
    release = Release(folder, table=table)

    report = release.run(*[PredictRequest(text="good")] * 5)
    release.now[0] += 1.0
    later = release.run(*[PredictRequest(text="good")] * 5)

    assert (len(report.comparisons), report.num_dropped_comparisons) == (3, 2)
    assert (len(later.comparisons), later.num_dropped_comparisons) == (3, 2)


def test_a_busy_ingress_drops_shadows_first(folder):
    release = Release(folder, max_queued_requests=64)

    async def go():
        with release.admission.admit(33, most=64):
            await release.ask(PredictRequest(text="good"))

    asyncio.run(go())

    report = release.log.take_report(reporter="one", sequence=1, table_number=2)
    assert (report.comparisons, report.num_dropped_comparisons) == ([], 1)


def test_no_more_than_a_call_of_shadows_is_in_hand(folder):
    release = Release(folder)

    async def go():
        for lane in release.candidate_lanes.values():
            lane.hold()
        for _ in range(MOST_IN_HAND + 2):
            await release.ask(PredictRequest(text="good"))
        for lane in release.candidate_lanes.values():
            lane.release()
        await release.settle()
        await release.ask(PredictRequest(text="good"))
        await release.settle()

    asyncio.run(go())

    report = release.log.take_report(reporter="one", sequence=1, table_number=2)
    assert (len(report.comparisons), report.num_dropped_comparisons) == (MOST_IN_HAND + 1, 2)


def test_a_candidate_that_fails_a_text_of_the_stable_version_is_told(folder):
    release = Release(folder)
    release.candidate_lanes["short"].outcome = InferenceError("no")

    (seen,) = release.run(PredictRequest(text="good film is")).comparisons

    assert (seen.candidate_failed, seen.candidate_label, seen.candidate_score) == (True, "", 0.0)
    assert (seen.stable_label, seen.candidate_ms, seen.shift) == ("positive", 0.0, 0.0)


def test_a_candidate_that_cannot_take_the_request_is_told(folder, tmp_path):
    release = Release(folder)
    pairs, _ = load(write_tiny_bundle(tmp_path / "pairs", takes_pairs=True).folder, "v2")
    release.split._candidate = pairs

    (seen,) = release.run(PredictRequest(text="good")).comparisons

    assert seen.candidate_failed


@pytest.mark.parametrize("error", [OverloadedError("full"), NotReadyError("none")])
def test_a_shadow_that_found_no_room_is_dropped_and_no_fault(folder, error):
    release = Release(folder)
    release.candidate_lanes["short"].outcome = error

    report = release.run(PredictRequest(text="good"))

    assert (report.comparisons, report.num_dropped_comparisons) == ([], 1)


def test_a_stable_version_that_fails_a_candidate_s_text_says_nothing(folder):
    release = Release(folder)
    release.stable_lanes["short"].outcome = InferenceError("no")

    report = release.run(PredictRequest(text="good"), by="v2")

    assert report.comparisons == []


def test_words_and_label_sets_are_compared_too(tmp_path):
    class ByWord(FakeLane):
        def logits_of(self, num_tokens):
            logits = np.zeros((num_tokens, 3), dtype=np.float32)
            logits[2:, 1 if self.threshold == 4.0 else 2] = 2.0
            return logits

    class Many(FakeLane):
        def logits_of(self, num_tokens):
            high = [2.0, 1.0, -1.0] if self.threshold == 4.0 else [-2.0, -1.0, -1.0]
            return np.array(high, dtype=np.float32)

    seen = {}
    for task, lane in ((TOKEN, ByWord), (MULTI_LABEL, Many)):
        folder = write_tiny_bundle(tmp_path / task, task=task).folder
        release = Release(folder)
        for lanes, threshold in ((release.stable_lanes, 4.0), (release.candidate_lanes, 6.0)):
            lanes.update(short=lane(threshold=threshold))
        (seen[task],) = release.run(PredictRequest(text="anna lives")).comparisons

    words, labels = seen[TOKEN], seen[MULTI_LABEL]
    # The first word is alike, the second is not.
    assert (words.stable_label, words.candidate_label) == ("PER", "LOC")
    assert (labels.stable_label, labels.candidate_label) == ("negative + positive", NO_LABEL)
    assert labels.shift == pytest.approx(np.tanh(1.0))


def test_a_key_decides_before_the_request_s_id_and_stays_with_its_version(folder):
    split = Release(folder).split

    def version_of(request_id, release_key=None):
        record = RequestRecord(path="/", method="POST", request_id=request_id)
        record.release_key = release_key
        return split.choose(record).version

    by_id = {version_of(f"r{number}") for number in range(50)}
    by_key = {version_of(f"r{number}", "client-7") for number in range(50)}

    assert by_id == {"v1", "v2"}
    assert len(by_key) == 1
