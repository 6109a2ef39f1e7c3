import pytest
from row_samples import recipe_of, sentence, source_row

from pipeline.config import Task
from pipeline.data.cleaning import clean_row
from pipeline.data.rows import RejectedRow, RejectReason


def test_row_is_cleaned_and_keeps_its_line_label_and_split():
    row = clean_row(source_row(" x <br/> y ", line=7, split="test"), recipe_of())

    assert (row.line, row.text, row.text_pair, row.labels, row.split) == (
        7,
        "x y",
        "",
        ("a",),
        "test",
    )


def test_label_outside_label_names_is_rejected_and_others_are_renamed():
    recipe = recipe_of(label_names={"0": "negative"})

    renamed = clean_row(source_row("x", "0"), recipe)
    rejected = clean_row(source_row("y", "7"), recipe)

    assert renamed.labels == ("negative",)
    assert (rejected.reason, rejected.value) == (RejectReason.UNKNOWN_LABEL, "7")


def test_labels_that_get_one_name_are_one_label():
    recipe = recipe_of(Task.MULTI_LABEL, label_names={"0": "b", "1": "b", "2": "a"})

    assert clean_row(source_row("x", "0", "1", "2"), recipe).labels == ("a", "b")


def test_words_are_cleaned_and_unusable_ones_reject_the_sentence():
    recipe = recipe_of(Task.TOKEN)

    assert clean_row(sentence("A&amp;T", "won"), recipe).text == "A&T won"
    for words in (("a", "<b>"), ("a\u00a0b",)):
        rejected = clean_row(sentence(*words), recipe)
        assert (rejected.reason, rejected.value) == (RejectReason.UNUSABLE_WORD, " ".join(words))


@pytest.mark.parametrize("texts", [("", None), (" \x00", None), ("x", " "), ("", "x")])
def test_text_of_which_nothing_is_left_is_rejected(texts):
    row = clean_row(source_row(texts[0], text_pair=texts[1]), recipe_of())

    assert isinstance(row, RejectedRow)
    assert row.reason is RejectReason.EMPTY_TEXT


def test_hash_is_of_the_cleaned_text_and_of_both_texts_of_a_pair():
    def text_hash(*texts):
        return clean_row(source_row(texts[0], text_pair=texts[-1]), recipe_of()).text_hash

    assert text_hash(" a  b", None) == text_hash("a b", None)
    assert len({text_hash("a", None), text_hash("a", "b"), text_hash("b", "a")}) == 3
    assert text_hash("a", "b c") != text_hash("a b", "c")


def test_draw_follows_the_seed_and_is_made_only_for_a_sample():
    draws = [
        clean_row(source_row("x"), recipe).draw
        for recipe in (recipe_of(), recipe_of(sample_rows=1), recipe_of(sample_rows=1, seed=1))
    ]

    assert draws[0] == bytes(8)
    assert len(set(draws)) == 3
