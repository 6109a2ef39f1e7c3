"""Words and where they stand in the text as it was sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.tokenization import TextSettings, clean_text
from pipeline.contract.word_spans import WordSpan, find_words

PLAIN = TextSettings(max_seq_len=16)
HTML = TextSettings(max_seq_len=16, strip_html=True)
PLAIN_PARTS = [
    "a",
    "Ä",
    "é",
    "😀",
    "\u0301",
    " ",
    "\t\n",
    "\x00",
    "\x1c",
    "\xa0",
    "\ud800",
    "\u200b",
]
HTML_PARTS = ["<b>", "</b", "<br/>", "<", ">", "&", "&amp;", "&lt;b&gt;", "&nbsp;", "&#0;", "&#x41"]
ODD_PARTS = [";", "&notit;", "&eacute", "&#xD800;", "\u0627", "\u202e", "#", "x"]
PARTS = st.sampled_from([*PLAIN_PARTS, *HTML_PARTS, *ODD_PARTS])


def places(text, settings):
    return [(span.word, span.start, span.end) for span in find_words(text, settings)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Good  film", [("Good", 0, 4), ("film", 6, 10)]),
        (" \tgood\n", [("good", 2, 6)]),
        ("a\x00b", [("a", 0, 1), ("b", 2, 3)]),
        ("😀 x", [("😀", 0, 1), ("x", 2, 3)]),
        ("", []),
        (" \x00 ", []),
    ],
)
def test_words_have_their_places_in_the_text_as_sent(text, expected):
    assert places(text, PLAIN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b>Good</b> film", [("Good", 3, 7), ("film", 12, 16)]),
        ("fish&amp;chips", [("fish&chips", 0, 14)]),
        ("a&nbsp;b", [("a", 0, 1), ("b", 7, 8)]),
        ("&lt;b&gt;", [("<b>", 0, 9)]),
    ],
)
def test_tags_and_references_count_as_they_were_sent(text, expected):
    assert places(text, HTML) == expected


@pytest.mark.slow
@pytest.mark.parametrize("settings", [PLAIN, HTML], ids=["plain", "html"])
@given(parts=st.lists(PARTS, max_size=12))
def test_the_words_are_those_of_the_cleaned_text(settings, parts):
    text = "".join(parts)

    words = [span.word for span in find_words(text, settings)]

    cleaned = clean_text(text, settings)
    assert not cleaned or " ".join(words) == cleaned


@pytest.mark.parametrize("settings", [PLAIN, HTML], ids=["plain", "html"])
@given(text=st.text())
def test_the_words_of_any_text_are_those_of_the_cleaned_text(settings, text):
    words = [span.word for span in find_words(text, settings)]

    cleaned = clean_text(text, settings)
    assert not cleaned or " ".join(words) == cleaned


@pytest.mark.slow
@pytest.mark.parametrize("settings", [PLAIN, HTML], ids=["plain", "html"])
@given(parts=st.lists(PARTS, max_size=12))
def test_places_rise_and_lie_in_the_text(settings, parts):
    text = "".join(parts)

    spans = find_words(text, settings)

    edges = [edge for span in spans for edge in (span.start, span.end)]
    assert edges == sorted(edges)
    assert all(0 <= edge <= len(text) for edge in edges)
    assert all(span.start < span.end for span in spans)


def test_a_plain_word_is_what_stands_at_its_place():
    text = "Anna  lives\tin Oslo."

    assert all(text[s.start : s.end] == s.word for s in find_words(text, PLAIN))
    assert find_words("Anna", PLAIN) == [WordSpan(word="Anna", start=0, end=4)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&eacute\x00a", [("é", 0, 7), ("a", 8, 9)]),
        ("&eacutes go", [("és", 0, 8), ("go", 9, 11)]),
        ("&semi;", [(";", 0, 6)]),
        ("&#59;", [(";", 0, 5)]),
        ("&\ud800", [("&", 0, 1)]),
    ],
)
def test_what_a_reference_leaves_as_it_was_keeps_its_own_place(text, expected):
    spans = find_words(text, HTML)

    assert [(span.word, span.start, span.end) for span in spans] == expected
