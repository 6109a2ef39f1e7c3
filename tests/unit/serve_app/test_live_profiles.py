"""Which counts of live texts an ingress reports."""

import asyncio

import numpy as np
from bundles import MULTI_LABEL, TOKEN, write_tiny_bundle
from fakes import FakeLane

from pipeline.contract.profile import NO_LABEL, length_edges
from serve_app.config import ServeSettings
from serve_app.release.live_profiles import MOST_TEXTS, ProfileLog
from serve_app.request_record import RequestRecord
from serve_app.schemas import PredictRequest
from serve_app.served import open_served
from serve_app.service import PredictService


def profile_of(folder, lane, *requests, log=None):
    served = open_served(ServeSettings(bundle=str(folder)))
    encoder = served.bundle.load_text_encoder()
    service = PredictService(served, encoder=encoder, lanes={"short": lane, "long": lane})
    log = log or ProfileLog()

    async def go():
        for request in requests:
            record = RequestRecord(path="/", method="POST", request_id="r")
            prediction = await service.predict(request, record)
            log.add(prediction, version="v", served=served, encoder=encoder)

    asyncio.run(go())
    (profile,) = log.take()
    edges = length_edges(served.bundle.manifest.seq_len_percentiles)
    return profile, edges, log


def test_lengths_unknown_tokens_labels_and_confidence_are_counted(tmp_path):
    folder = write_tiny_bundle(tmp_path / "bundle").folder
    request = PredictRequest(texts=["good", "zebra film", "", "the film is good fun"])

    profile, edges, log = profile_of(folder, FakeLane(), request)

    assert len(profile.length_counts) == len(edges) + 1
    assert sum(profile.length_counts) == 3
    # 3, 4 and 7 tokens with the two special ones; `zebra` is not in the vocabulary.
    assert (profile.num_tokens, profile.num_unknown_tokens) == (14, 1)
    assert profile.label_counts == {"negative": 2, "positive": 1}
    # Scores of 0.73, 0.5 and 0.95.
    assert profile.confidence_counts == (0, 0, 0, 0, 0, 1, 0, 1, 0, 1)
    assert log.take() == []


def test_a_report_counts_so_many_texts_and_no_more(tmp_path):
    folder = write_tiny_bundle(tmp_path / "bundle").folder
    requests = [PredictRequest(texts=["good"] * 50)] * (MOST_TEXTS // 50 + 1)

    profile, _, log = profile_of(folder, FakeLane(), *requests)
    again, _, _ = profile_of(folder, FakeLane(), requests[0], log=log)

    assert (sum(profile.length_counts), sum(again.length_counts)) == (MOST_TEXTS, 50)


def test_words_and_label_sets_are_counted_as_in_training(tmp_path):
    class Words(FakeLane):
        def logits_of(self, num_tokens):
            return np.full((num_tokens, 3), [0.0, 9.0, 0.0], dtype=np.float32)

    class Sets(FakeLane):
        def logits_of(self, num_tokens):
            return np.full(3, 2.0 if num_tokens > 3 else -2.0, dtype=np.float32)

    words = write_tiny_bundle(tmp_path / "words", task=TOKEN).folder
    sets = write_tiny_bundle(tmp_path / "sets", task=MULTI_LABEL).folder

    of_words, _, _ = profile_of(words, Words(), PredictRequest(text="anna lives"))
    of_sets, _, _ = profile_of(sets, Sets(), PredictRequest(texts=["good", "good film"]))

    assert of_words.label_counts == {"PER": 2}
    assert of_sets.label_counts == {NO_LABEL: 1, "negative": 1, "positive": 1, "PER": 1}
    assert sum(of_sets.confidence_counts) == 3
