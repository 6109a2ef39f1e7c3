"""Texts and words of a request to rows with a lane."""

from dataclasses import replace

import pytest
from bundles import SEQUENCE, TOKEN, VOCABULARY, write_tiny_bundle

from pipeline.contract.errors import (
    EmptyTextError,
    InvalidRequestError,
    TextTooLongError,
    TooManyTokensError,
)
from serve_app.config import ServeSettings
from serve_app.encoding import (
    check_pairing,
    choose_lane,
    encode_pair,
    encode_texts,
    encode_words,
)
from serve_app.limits import resolve_limits


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    bundle = write_tiny_bundle(tmp_path_factory.mktemp("encoding") / "bundle")
    limits = resolve_limits(ServeSettings(bundle="b"), bundle)
    return {"encoder": bundle.load_text_encoder(), "limits": limits}


def test_lane_follows_the_number_of_tokens(parts):
    rows = encode_texts(["the " * 6, "the " * 7], task=SEQUENCE, **parts)

    assert [(row.num_tokens, row.lane) for row in rows] == [(8, "short"), (9, "long")]


def test_cut_between_lanes_is_inclusive(parts):
    assert [choose_lane(count, parts["limits"]) for count in (8, 9)] == ["short", "long"]


def test_long_text_is_cut_and_marked(parts):
    (row,) = encode_texts(["the " * 40], task=SEQUENCE, **parts)

    assert (row.num_tokens, row.is_truncated) == (16, True)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\x00"])
def test_text_that_is_empty_after_cleaning_is_refused_by_its_place(parts, text):
    good, refused = encode_texts(["good", text], task=SEQUENCE, **parts)

    assert good.num_tokens == 3
    assert (type(refused), refused.place) == (EmptyTextError, "texts[1]")


def test_text_over_the_characters_is_refused_with_both_numbers(parts):
    (refused,) = encode_texts(["a" * 201], task=SEQUENCE, **parts)

    assert isinstance(refused, TextTooLongError)
    assert "201 characters are over the limit of 200" in str(refused)


@pytest.mark.parametrize("text", [None, 1, True, ["good"], {"text": "good"}])
def test_what_is_no_text_is_refused_beside_a_good_one(parts, text):
    refused, good = encode_texts([text, "good"], task=SEQUENCE, **parts)

    assert (type(refused), refused.place) == (InvalidRequestError, "texts[0]")
    assert good.num_tokens == 3


@pytest.mark.parametrize("task", [SEQUENCE, TOKEN])
def test_texts_over_max_seq_len_are_refused_where_the_limits_say_so(parts, task):
    limits = replace(parts["limits"], refuses_too_long=True)

    fits, refused = encode_texts(
        ["the " * 14, "the " * 15], task=task, encoder=parts["encoder"], limits=limits
    )

    assert (fits.num_tokens, fits.is_truncated) == (16, False)
    assert (type(refused), refused.place) == (TooManyTokensError, "texts[1]")


def test_words_and_pairs_over_max_seq_len_are_refused_where_the_limits_say_so(parts):
    limits = replace(parts["limits"], refuses_too_long=True)

    with pytest.raises(TooManyTokensError, match="words: over the limit of 16 tokens"):
        encode_words(["the"] * 15, task=TOKEN, encoder=parts["encoder"], limits=limits)
    with pytest.raises(TooManyTokensError, match="text: over the limit of 16 tokens"):
        encode_pair("the " * 14, "good", encoder=parts["encoder"], limits=limits)


def test_no_texts_are_no_rows(parts):
    assert encode_texts([], task=SEQUENCE, **parts) == []


def test_caller_may_name_the_places(parts):
    (refused,) = encode_texts([""], task=SEQUENCE, places=["line 7"], **parts)

    assert refused.place == "line 7"


def test_text_becomes_words_for_the_token_task(parts):
    (row,) = encode_texts(["Anna  lives\nin Oslo"], task=TOKEN, **parts)

    assert [span.word for span in row.words] == ["Anna", "lives", "in", "Oslo"]
    assert [(span.start, span.end) for span in row.words] == [(0, 4), (6, 11), (12, 14), (15, 19)]
    assert row.word_ids.tolist() == [-1, 0, 1, 2, 3, -1]


def test_a_pair_is_one_row_with_both_texts_cleaned(parts):
    row = encode_pair("good  film", "\x00bad", **parts)

    ids = [VOCABULARY.index(word) for word in ("[CLS]", "good", "film", "[SEP]", "bad", "[SEP]")]
    assert row.input_ids.tolist() == ids
    assert (row.num_tokens, row.words, row.lane) == (6, (), "short")


def test_a_long_pair_is_cut_and_marked(parts):
    row = encode_pair("the " * 40, "good", **parts)

    assert (row.num_tokens, row.lane, row.is_truncated) == (16, "long", True)
    assert row.input_ids.tolist()[-2:] == [
        VOCABULARY.index("good"),
        VOCABULARY.index("[SEP]"),
    ]


@pytest.mark.parametrize(
    ("text", "text_pair", "place"), [("", "good", "^text: "), ("good", " ", "^text_pair: ")]
)
def test_an_empty_text_of_a_pair_is_refused_by_its_name(parts, text, text_pair, place):
    with pytest.raises(EmptyTextError, match=place):
        encode_pair(text, text_pair, **parts)


def test_each_text_of_a_pair_has_its_own_limit_of_characters(parts):
    encode_pair("a" * 200, "b" * 200, **parts)

    with pytest.raises(TextTooLongError, match="text_pair: 201 characters"):
        encode_pair("a", "b" * 201, **parts)


def test_pairing_must_be_that_of_the_model():
    check_pairing(is_pair=True, takes_pairs=True)
    check_pairing(is_pair=False, takes_pairs=False)

    with pytest.raises(InvalidRequestError, match=r"second text is missing\. Give one text and"):
        check_pairing(is_pair=False, takes_pairs=True)
    with pytest.raises(InvalidRequestError, match=r"it takes no pair\. Leave --pair out"):
        check_pairing(is_pair=True, takes_pairs=False, place="--pair")


def test_words_are_kept_as_given(parts):
    row = encode_words(["Anna", "films"], task=TOKEN, **parts)

    assert [(span.word, span.start) for span in row.words] == [("Anna", None), ("films", None)]
    assert row.word_ids.tolist() == [-1, 0, 1, 1, -1]


def test_words_for_a_sequence_model_are_refused(parts):
    with pytest.raises(InvalidRequestError, match="takes no words"):
        encode_words(["good"], task=SEQUENCE, **parts)


def test_empty_word_is_refused_by_its_index(parts):
    with pytest.raises(EmptyTextError, match=r"words\[1\]"):
        encode_words(["Anna", " "], task=TOKEN, **parts)


def test_no_words_are_refused(parts):
    with pytest.raises(EmptyTextError, match="no words"):
        encode_words([], task=TOKEN, **parts)


def test_words_count_as_one_text_of_their_characters_and_blanks(parts):
    encode_words(["a" * 99, "b" * 100], task=TOKEN, **parts)

    with pytest.raises(TextTooLongError, match="201"):
        encode_words(["a" * 100, "b" * 100], task=TOKEN, **parts)
