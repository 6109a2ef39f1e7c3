import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_samples import facts_of, spool_of

from pipeline.contract.errors import BadRowsError, DataError
from pipeline.data.blocks import REASONS
from pipeline.data.ledger import RowLedger
from pipeline.data.row_facts import NOT_SAMPLED
from pipeline.data.rows import RejectReason

EMPTY = REASONS.index(RejectReason.EMPTY_TEXT)
DUPLICATE = REASONS.index(RejectReason.DUPLICATE)


def ledger_of(path, reasons, *, values=None, texts=None, file_starts=None):
    """Return the ledger of rows with these reasons; those with none are kept."""
    facts = facts_of(["a"] * len(reasons))
    facts.reason[:] = reasons
    facts.split[facts.reason == -1] = 0
    starts = file_starts or [0, len(reasons)]
    facts = replace(facts, file_starts=np.array(starts))
    values, texts = values or [""] * len(reasons), texts or ["text"] * len(reasons)
    rows = [
        (text, [], 10 + i, value) for i, (text, value) in enumerate(zip(texts, values, strict=True))
    ]
    files = [f"{letter}.csv" for letter in "fgh"[: len(starts) - 1]]
    return RowLedger(facts, spool_of(path, rows), files)


def check(ledger, tmp_path, share=0.4, *, fails=False):
    ledger.check_bad_rows(max_bad_share=share, fails=fails, report=tmp_path / "out" / "bad.jsonl")


@settings(max_examples=30)
@given(st.lists(st.sampled_from([-1, NOT_SAMPLED, *range(len(REASONS))]), max_size=30), st.data())
def test_every_row_read_is_kept_rejected_or_not_sampled(reasons, data):
    cut = data.draw(st.integers(0, len(reasons)))
    with tempfile.TemporaryDirectory() as folder:
        ledger = ledger_of(Path(folder) / "spool", reasons, file_starts=[0, cut, len(reasons)])
        counts = ledger.counts()

    for part in (counts, *counts["by_file"].values()):
        assert part["read"] == part["kept"] + part["rejected"] + part["not_sampled"]
        assert part["rejected"] == sum(part["rejected_by_reason"].values())
    for name in ("read", "kept", "rejected", "not_sampled"):
        assert counts[name] == sum(part[name] for part in counts["by_file"].values())
    assert counts["read"] == len(reasons)


def test_counts_are_by_file_and_reason(tmp_path):
    reasons = [-1, DUPLICATE, EMPTY, NOT_SAMPLED]
    ledger = ledger_of(tmp_path / "spool", reasons, file_starts=[0, 3, 4])

    assert ledger.counts() == {
        "read": 4,
        "kept": 1,
        "rejected": 2,
        "not_sampled": 1,
        "rejected_by_reason": {"duplicate": 1, "empty_text": 1},
        "by_file": {
            "f.csv": {
                "read": 3,
                "kept": 1,
                "rejected": 2,
                "not_sampled": 0,
                "rejected_by_reason": {"duplicate": 1, "empty_text": 1},
            },
            "g.csv": {
                "read": 1,
                "kept": 0,
                "rejected": 0,
                "not_sampled": 1,
                "rejected_by_reason": {},
            },
        },
    }


def test_rejected_rows_are_listed_in_order_with_file_line_reason_and_short_value(tmp_path):
    reasons = [EMPTY, -1, -1, -1, DUPLICATE, DUPLICATE]
    ledger = ledger_of(
        tmp_path / "spool",
        reasons,
        values=["<p>", "", "", "", "", ""],
        texts=["", "", "", "", "kurz", "ü" * 300],
        file_starts=[0, 5, 6],
    )

    ledger.write_rejected(tmp_path / "rejected.jsonl")

    lines = (tmp_path / "rejected.jsonl").read_text(encoding="utf-8").splitlines()
    assert [list(json.loads(line).values()) for line in lines] == [
        ["f.csv", 10, "empty_text", "<p>"],
        ["f.csv", 14, "duplicate", "kurz"],
        ["g.csv", 15, "duplicate", "ü" * 197 + "..."],
    ]


def test_too_many_bad_rows_stop_with_reasons_and_the_list(tmp_path):
    ledger = ledger_of(tmp_path / "spool", [-1, EMPTY])

    with pytest.raises(BadRowsError, match=r"f\.csv:11: 1 of 2 rows are bad \(empty_text 1\)"):
        check(ledger, tmp_path)

    assert json.loads((tmp_path / "out" / "bad.jsonl").read_text())["line"] == 11


def test_bad_rows_up_to_the_share_and_any_duplicates_pass(tmp_path):
    check(ledger_of(tmp_path / "a", [-1, EMPTY]), tmp_path, 0.5)
    check(ledger_of(tmp_path / "b", [-1] + [DUPLICATE] * 8), tmp_path, 0.0, fails=True)

    assert not (tmp_path / "out").exists()


def test_fail_stops_at_the_first_bad_row(tmp_path):
    ledger = ledger_of(tmp_path / "spool", [DUPLICATE, EMPTY, EMPTY], values=["", "<p>", ""])

    with pytest.raises(DataError, match=r"f\.csv:11: bad row: empty text.*<p>.*on_bad_rows"):
        check(ledger, tmp_path, 1.0, fails=True)


def test_labels_that_label_names_lacks_are_named_in_the_remedy(tmp_path):
    unknown = REASONS.index(RejectReason.UNKNOWN_LABEL)
    values = ["bug", *"abcd", "bug", "e"]
    ledger = ledger_of(tmp_path / "spool", [unknown] * len(values), values=values)

    with pytest.raises(BadRowsError) as raised:
        check(ledger, tmp_path)

    assert raised.value.remedy.endswith(
        "data.label_names does not name 'bug', 'a', 'b', 'c', 'd', …: add them there, or take "
        "data.label_names out to keep the labels as they are."
    )
