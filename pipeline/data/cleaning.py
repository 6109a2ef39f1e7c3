"""Cleans the rows that were read, and sets aside bad ones, duplicates and contradictions."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.contract.tokenization import TextSettings, clean_text
from pipeline.data.ledger import RowLedger
from pipeline.data.rows import RejectedRow, RejectReason, SourceRow, reject


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanRow:
    """One usable row."""

    row_id: int
    """Position among all rows read, rejected ones included."""
    file: str
    line: int
    text: str
    """Cleaned text; the words joined by spaces for token labels."""
    words: tuple[str, ...] | None
    labels: tuple[str, ...]
    """Label names: one for a text, one for each word."""
    text_sha256: bytes
    """Hash of the cleaned text; decides split and sample."""


def clean_rows(
    items: Iterable[SourceRow | RejectedRow],
    *,
    settings: TextSettings,
    label_names: Mapping[str, str],
    ledger: RowLedger,
) -> list[CleanRow]:
    """Return the usable rows in order, each text once; the ledger gets all others.

    A text that comes again with the same labels is a duplicate, its first row stays. A
    text that comes with different labels is rejected in all its rows: nobody knows which
    label is right, and two of them could land on both sides of the split.

    Raises:
        DataError: from the readers, or at a bad row if the ledger stops there.
    """
    by_text: dict[bytes, list[CleanRow]] = {}
    for item in items:
        row_id = ledger.num_read
        ledger.add_read(item.file)
        if isinstance(item, SourceRow):
            row: CleanRow | RejectedRow = _clean_row(item, row_id, settings, label_names)
        else:
            row = item
        if isinstance(row, RejectedRow):
            ledger.add_rejected(row_id, row)
        else:
            by_text.setdefault(row.text_sha256, []).append(row)
    return sorted(
        (row for rows in by_text.values() for row in _keep_one(rows, ledger)),
        key=lambda row: row.row_id,
    )


def _clean_row(
    row: SourceRow, row_id: int, settings: TextSettings, label_names: Mapping[str, str]
) -> CleanRow | RejectedRow:
    words = None
    if row.words is None:
        text = clean_text(row.text, settings)
    else:
        words = tuple(clean_text(word, settings) for word in row.words)
        if not all(words) or any(" " in word for word in words):
            return reject(row.file, row.line, RejectReason.UNUSABLE_WORD, " ".join(row.words))
        text = " ".join(words)
    if not text:
        return reject(row.file, row.line, RejectReason.EMPTY_TEXT, row.text)
    unknown = [label for label in row.labels if label_names and label not in label_names]
    if unknown:
        return reject(row.file, row.line, RejectReason.UNKNOWN_LABEL, unknown[0])
    return CleanRow(
        row_id=row_id,
        file=row.file,
        line=row.line,
        text=text,
        words=words,
        labels=tuple(label_names.get(label, label) for label in row.labels),
        text_sha256=hashlib.sha256(text.encode("utf-8")).digest(),
    )


def _keep_one(rows: list[CleanRow], ledger: RowLedger) -> list[CleanRow]:
    is_conflict = any(row.labels != rows[0].labels for row in rows)
    reason = RejectReason.CONFLICTING_LABELS if is_conflict else RejectReason.DUPLICATE
    kept, dropped = ([], rows) if is_conflict else (rows[:1], rows[1:])
    for row in dropped:
        ledger.add_rejected(row.row_id, reject(row.file, row.line, reason, row.text))
    return kept
