"""The ONNX Runtime session against the tiny bundle's formula."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from bundles import FAILING_WORD, LABELS, TOKEN, VOCABULARY, WEIGHT, write_tiny_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.contract.errors import FolderError, InferenceError
from serve_app.session import ScoringSession, score_rows

GOOD, BAD, FILM, ANNA = (VOCABULARY.index(word) for word in ("good", "bad", "film", "anna"))
FAILING = VOCABULARY.index(FAILING_WORD)


def open_session(folder, *, num_labels=2, **options):
    bundle = write_tiny_bundle(folder / "bundle", **options)
    return ScoringSession(bundle.model_path(), pad_token_id=0, num_labels=num_labels, num_threads=1)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return open_session(tmp_path_factory.mktemp("session"))


def row(*ids):
    return np.array(ids, dtype=np.int32)


def score(session, rows, max_batch_tokens=8, max_batch_requests=4):
    return score_rows(
        session, rows, max_batch_tokens=max_batch_tokens, max_batch_requests=max_batch_requests
    )


def test_logits_are_those_of_the_formula(session):
    logits = session.run(np.array([[GOOD, FILM], [BAD, 0]]), np.array([[1, 1], [1, 0]]))

    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, [[0.0, WEIGHT / 2], [WEIGHT, 0.0]])


@settings(max_examples=30)
@given(
    st.lists(
        st.lists(st.sampled_from([GOOD, BAD, FILM]), min_size=1, max_size=12),
        min_size=1,
        max_size=12,
    )
)
def test_a_row_scores_the_same_alone_and_in_any_batch(session, rows):
    together = score(session, [row(*ids) for ids in rows])

    for ids, logits in zip(rows, together, strict=True):
        expected = [WEIGHT * ids.count(BAD) / len(ids), WEIGHT * ids.count(GOOD) / len(ids)]
        np.testing.assert_allclose(logits, expected, atol=1e-6)


def test_runs_at_once_do_not_touch_each_other(session):
    groups = [[row(*[GOOD, BAD, FILM][: 1 + n % 3] * (1 + n % 7))] * (1 + n % 4) for n in range(90)]
    alone = [session.score_group(group) for group in groups]

    with ThreadPoolExecutor(3) as threads:
        at_once = list(threads.map(session.score_group, groups))

    for ours, expected in zip(at_once, alone, strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_groups_respect_the_token_budget_and_are_reported(session):
    groups = []

    score_rows(
        session,
        [row(*[FILM] * length) for length in (3, 9, 4)],
        max_batch_tokens=10,
        max_batch_requests=4,
        on_group=groups.append,
    )

    assert groups == [[3, 4], [9]]


def test_a_failing_row_fails_alone(session):
    outcomes = score(session, [row(GOOD), row(FAILING), row(BAD)])

    assert isinstance(outcomes[1], InferenceError)
    np.testing.assert_allclose(outcomes[0], [0.0, WEIGHT])
    np.testing.assert_allclose(outcomes[2], [WEIGHT, 0.0])


def test_token_logits_are_cut_to_each_row(tmp_path):
    session = open_session(tmp_path, task=TOKEN, num_labels=3)

    outcomes = score(session, [row(ANNA, FILM, FILM), row(ANNA)])

    assert [outcome.shape for outcome in outcomes] == [(3, 3), (1, 3)]
    assert outcomes[0][0, LABELS[TOKEN].index("PER")] == WEIGHT


def test_warm_up_refuses_a_model_with_another_number_of_labels(tmp_path):
    session = open_session(tmp_path, num_labels=3)

    with pytest.raises(FolderError, match="names 3 labels"):
        session.warm_up([(1, 3)])


def test_warm_up_runs_every_shape_it_is_given(session):
    session.warm_up([(1, 3), (4, 16)])


def test_file_that_is_no_model_is_refused_by_name(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"not a model")

    with pytest.raises(FolderError, match=r"cannot load the model"):
        ScoringSession(tmp_path / "model.onnx", pad_token_id=0, num_labels=2, num_threads=1)
