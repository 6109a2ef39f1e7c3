import json

import pytest

from pipeline.contract.errors import BadRowsError, DataError
from pipeline.contract.tokenization import TextSettings
from pipeline.data.cleaning import clean_rows
from pipeline.data.ledger import RowLedger
from pipeline.data.rows import RejectReason, SourceRow, reject

SETTINGS = TextSettings(max_seq_len=16, strip_html=True)


def row(text, label="a", *, file="f.csv", line=1):
    return SourceRow(file=file, line=line, text=text, labels=(label,))


def sentence(*words, labels=None):
    labels = labels or tuple("O" for _ in words)
    return SourceRow(file="f.conll", line=1, words=words, labels=labels)


def clean(items, *, label_names=None, ledger=None):
    ledger = ledger or RowLedger(stops_at_bad_row=False)
    rows = clean_rows(items, settings=SETTINGS, label_names=label_names or {}, ledger=ledger)
    return rows, ledger


def test_row_keeps_its_position_among_all_rows_read():
    rows, _ = clean([row(" x <br/> y "), row("<p>"), row("z", "b")])

    assert [(r.row_id, r.text, r.labels) for r in rows] == [(0, "x y", ("a",)), (2, "z", ("b",))]


def test_same_text_and_label_is_a_duplicate_of_the_first():
    rows, ledger = clean([row("x"), row("y"), row(" x", file="g.csv", line=9)])

    assert [r.row_id for r in rows] == [0, 1]
    assert ledger.rejected == [reject("g.csv", 9, RejectReason.DUPLICATE, "x")]


def test_same_text_with_two_labels_is_rejected_in_all_its_rows():
    rows, ledger = clean([row("x"), row("y"), row("x", "b"), row("x")])

    assert [r.text for r in rows] == ["y"]
    assert [r.reason.value for r in ledger.rejected] == ["conflicting_labels"] * 3


def test_label_outside_label_names_is_rejected_and_others_are_renamed():
    rows, ledger = clean([row("x", "0"), row("y", "7")], label_names={"0": "negative"})

    assert rows[0].labels == ("negative",)
    assert ledger.rejected[0].reason is RejectReason.UNKNOWN_LABEL
    assert ledger.rejected[0].value == "7"


def test_words_are_cleaned_and_unusable_ones_reject_the_sentence():
    rows, ledger = clean([sentence("A&amp;T", "won"), sentence("a", "<b>"), sentence("a\u00a0b")])

    assert rows[0].words == ("A&T", "won")
    assert rows[0].text == "A&T won"
    assert [r.reason.value for r in ledger.rejected] == ["unusable_word"] * 2


def test_every_row_read_is_kept_rejected_or_not_sampled():
    items = [row("x"), row("x"), row(""), row("y", file="g.csv")]
    _, ledger = clean(items)
    ledger.add_not_sampled("g.csv")

    assert ledger.counts() == {
        "read": 4,
        "kept": 1,
        "rejected": 2,
        "not_sampled": 1,
        "rejected_by_reason": {"duplicate": 1, "empty_text": 1},
        "by_file": {
            "f.csv": {"read": 3, "kept": 1, "rejected": 2, "not_sampled": 0},
            "g.csv": {"read": 1, "kept": 0, "rejected": 0, "not_sampled": 1},
        },
    }


def test_rejected_file_has_file_line_reason_and_short_value(tmp_path):
    _, ledger = clean([row("ü" * 300), row("ü" * 300, "b", line=2)])
    ledger.write_rejected(tmp_path / "rejected.jsonl")

    lines = (tmp_path / "rejected.jsonl").read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    assert [first[key] for key in ("file", "line", "reason")] == ["f.csv", 1, "conflicting_labels"]
    assert first["value"] == "ü" * 197 + "..."


def test_too_many_bad_rows_stop_with_reasons_and_the_list(tmp_path):
    report = tmp_path / "out" / "bad_rows.jsonl"
    _, ledger = clean([row("x"), row("", line=7)])

    with pytest.raises(BadRowsError, match=r"f\.csv:7: 1 of 2 rows are bad \(empty_text 1\)"):
        ledger.check_bad_share(0.4, report=report)

    assert json.loads(report.read_text())["line"] == 7


def test_duplicates_are_not_bad_rows(tmp_path):
    _, ledger = clean([row("x")] * 9)

    ledger.check_bad_share(0.0, report=tmp_path / "bad_rows.jsonl")

    assert ledger.counts()["rejected"] == 8


def test_fail_stops_at_the_first_bad_row_but_not_at_a_duplicate():
    ledger = RowLedger(stops_at_bad_row=True)

    with pytest.raises(DataError, match=r"f\.csv:3: bad row: empty text.*on_bad_rows"):
        clean([row("x"), row("x", line=2), row(" ", line=3)], ledger=ledger)
