import io

import pytest
from prepare_samples import screen_on

COUNTS = {
    "read": 12,
    "rejected": 3,
    "by_file": {
        "a.csv": {"rejected_by_reason": {"duplicate": 1, "empty_text": 1}},
        "b.csv": {"rejected_by_reason": {}},
        "c.csv": {"rejected_by_reason": {"duplicate": 1}},
    },
}


@pytest.fixture
def shown():
    return io.StringIO()


def test_rejected_rows_are_a_table_by_file_and_reason(shown):
    screen_on(shown).show_rejected(COUNTS)

    text = shown.getvalue()
    assert "3 of 12 rows rejected" in text
    assert [("a.csv" in line, "empty_text" in line) for line in text.splitlines()].count(
        (True, True)
    ) == 1
    assert "b.csv" not in text


def test_nothing_is_shown_where_nothing_was_rejected(shown):
    screen_on(shown).show_rejected({**COUNTS, "rejected": 0})

    assert shown.getvalue() == ""


def test_table_of_very_many_files_ends_with_the_place_of_the_rest(shown):
    by_file = {f"{i}.csv": {"rejected_by_reason": {"duplicate": 1}} for i in range(100)}

    screen_on(shown).show_rejected({**COUNTS, "by_file": by_file})

    assert len(shown.getvalue().splitlines()) < 50
    assert "60 more lines are in the manifest" in shown.getvalue()


def test_step_is_one_plain_line_without_a_terminal(shown):
    with screen_on(shown).step("tokenising", 1234) as advance:
        advance(1000)

    assert shown.getvalue() == "prepare: tokenising 1,234 rows\n"


def test_step_on_a_terminal_counts_the_rows(shown):
    with screen_on(shown, is_terminal=True).step("reading") as advance:
        advance(30)
        advance(4)

    assert "34/34" in shown.getvalue()
