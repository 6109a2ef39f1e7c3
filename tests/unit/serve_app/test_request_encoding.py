"""Texts and words of a request to rows with a lane."""

import pytest
from bundles import SEQUENCE, TOKEN, VOCABULARY, write_tiny_bundle

from pipeline.contract.errors import EmptyTextError, InvalidRequestError, TextTooLongError
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

    assert (row.num_tokens, row.encoded.is_truncated) == (16, True)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\x00"])
def test_text_that_is_empty_after_cleaning_is_refused_by_its_place(parts, text):
    with pytest.raises(EmptyTextError, match=r"texts\[1\]"):
        encode_texts(["good", text], task=SEQUENCE, **parts)


def test_text_over_the_characters_is_refused_with_both_numbers(parts):
    with pytest.raises(TextTooLongError, match="201 characters are over the limit of 200"):
        encode_texts(["a" * 201], task=SEQUENCE, **parts)


def test_caller_may_name_the_places(parts):
    with pytest.raises(EmptyTextError, match="line 7"):
        encode_texts([""], task=SEQUENCE, places=["line 7"], **parts)


def test_text_becomes_words_for_the_token_task(parts):
    (row,) = encode_texts(["Anna  lives\nin Oslo"], task=TOKEN, **parts)

    assert row.words == ("Anna", "lives", "in", "Oslo")
    assert row.encoded.word_ids.tolist() == [-1, 0, 1, 2, 3, -1]


def test_a_pair_is_one_row_with_both_texts_cleaned(parts):
    row = encode_pair("good  film", "\x00bad", **parts)

    ids = [VOCABULARY.index(word) for word in ("[CLS]", "good", "film", "[SEP]", "bad", "[SEP]")]
    assert row.encoded.input_ids.tolist() == ids
    assert (row.num_tokens, row.words, row.lane) == (6, (), "short")


def test_a_long_pair_is_cut_and_marked(parts):
    row = encode_pair("the " * 40, "good", **parts)

    assert (row.num_tokens, row.lane, row.encoded.is_truncated) == (16, "long", True)
    assert row.encoded.input_ids.tolist()[-2:] == [
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

    assert row.words == ("Anna", "films")
    assert row.encoded.word_ids.tolist() == [-1, 0, 1, 1, -1]


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
