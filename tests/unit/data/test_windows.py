from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.errors import ConfigError
from pipeline.contract.tokenization import TextSettings, align_labels
from pipeline.data.vocabulary import train_text_encoder
from pipeline.data.windows import WindowEncoder

LETTERS = "abcdefgh"
ENCODER = train_text_encoder(
    lambda: iter([LETTERS, " ".join(LETTERS), "aa bb"]),
    vocab_size=100,
    settings=TextSettings(max_seq_len=8),
)
LONG = train_text_encoder(
    lambda: iter([LETTERS, " ".join(LETTERS), "aa bb"]),
    vocab_size=100,
    settings=TextSettings(max_seq_len=4096),
)
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=25)
STRIDES = st.integers(0, 5)


@given(WORDS, STRIDES)
def test_windows_cover_the_text_and_share_the_stride(words, stride):
    text = " ".join(words)

    windows = WindowEncoder(ENCODER, stride=stride).encode_texts([text])[0]

    inner = [ids[1:-1].tolist() for ids in windows]
    joined = inner[0]
    for previous, following in pairwise(inner):
        assert previous[len(previous) - stride :] == following[:stride]
        assert len(following) > stride
        joined = joined + following[stride:]
    assert joined == LONG.encode_texts([text])[0].input_ids[1:-1].tolist()
    assert all(len(ids) <= 8 for ids in windows)
    assert all(len(ids) == 8 for ids in windows[:-1])
    ends = {(int(ids[0]), int(ids[-1])) for ids in windows}
    assert len(ends) == 1


@given(WORDS, STRIDES)
def test_first_window_is_what_truncation_keeps(words, stride):
    text = " ".join(words)

    first = WindowEncoder(ENCODER, stride=stride).encode_texts([text])[0][0]

    assert first.tolist() == ENCODER.encode_texts([text])[0].input_ids.tolist()


@pytest.mark.slow
@given(WORDS, STRIDES)
def test_every_words_label_stands_where_the_word_begins_in_each_window(words, stride):
    windows = WindowEncoder(ENCODER, stride=stride).encode_words([words])[0]

    whole = LONG.encode_words([words])[0]
    expected = align_labels(range(len(words)), whole.word_ids)[1:-1]
    start = 0
    for window in windows:
        labels = align_labels(range(len(words)), window.word_ids)[1:-1]
        assert labels.tolist() == expected[start : start + len(labels)].tolist()
        start += len(labels) - stride


def test_text_that_fits_is_one_window():
    windows = WindowEncoder(ENCODER, stride=2).encode_texts(["a b c d e f", "a"])

    assert [len(found) for found in windows] == [1, 1]
    assert np.array_equal(windows[1][0], ENCODER.encode_texts(["a"])[0].input_ids)


def test_stride_that_fills_the_window_is_refused():
    with pytest.raises(ConfigError, match=r"data\.window_stride: windows of 6 tokens .* \(got 6\)"):
        WindowEncoder(ENCODER, stride=6)
