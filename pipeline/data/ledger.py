"""The account of the rows: read = kept + rejected with a reason + not sampled, by file."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import BadRowsError, DataError
from pipeline.data.blocks import NO_REASON, NO_SPLIT, REASONS
from pipeline.data.row_facts import NOT_SAMPLED, RowFacts
from pipeline.data.rows import RejectedRow, RejectReason, reject
from pipeline.data.spool import Spool

REJECTED_NAME = "rejected.jsonl"
_SHOWN_LABELS = 5
_BAD_REASONS = [index for index, reason in enumerate(REASONS) if reason.is_bad]


class RowLedger:
    """Accounts for every row that was read."""

    def __init__(self, facts: RowFacts, spool: Spool, files: Sequence[str]) -> None:
        """Take facts and texts of the same rows.

        Args:
            facts: of every row; what becomes of the rows later is seen here too.
            spool: of :data:`pipeline.data.blocks.SPOOL_SCHEMA`.
            files: names of the source files.
        """
        self._facts = facts
        self._spool = spool
        self._files = files

    def check_bad_rows(self, *, max_bad_share: float, fails: bool, report: Path) -> None:
        """Stop at a bad row, or when too many are bad; these are written down for people first.

        Duplicates, too long rows and rows outside the sample are not bad.

        Args:
            max_bad_share: share of all rows that may be bad.
            fails: whether one is too many (``on_bad_rows: fail``).
            report: file for the list.

        Raises:
            DataError: a row is bad and ``fails``.
            BadRowsError: the share of bad rows is over the limit.
        """
        is_bad = np.isin(self._facts.reason, _BAD_REASONS)
        num_bad = int(is_bad.sum())
        if not num_bad:
            return
        first = next(self._rejected(np.flatnonzero(is_bad)[:1]))
        if fails:
            raise bad_row_error(first)
        if num_bad <= max_bad_share * self._facts.num_rows:
            return
        report.parent.mkdir(parents=True, exist_ok=True)
        self.write_rejected(report)
        counts = Counter(REASONS[index].value for index in self._facts.reason[is_bad])
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.most_common())
        raise BadRowsError(
            f"{num_bad:,} of {self._facts.num_rows:,} rows are bad ({reasons}), over "
            f"data.max_bad_share {max_bad_share}",
            place=f"{first.file}:{first.line}",
            remedy=f"Every one is in {report}. {self._remedy()}",
        )

    def _remedy(self) -> str:
        is_unknown = self._facts.reason == REASONS.index(RejectReason.UNKNOWN_LABEL)
        labels = Counter(row.value for row in self._rejected(np.flatnonzero(is_unknown)))
        if not labels:
            return "Correct them, or raise data.max_bad_share."
        shown = ", ".join(f"{name!r}" for name, _ in labels.most_common(_SHOWN_LABELS))
        return (
            f"data.label_names does not name {shown}{', …' * (len(labels) > _SHOWN_LABELS)}: "
            "add them there, or take data.label_names out to keep the labels as they are."
        )

    def write_rejected(self, path: Path) -> None:
        """Write one JSON object a line in the order of the rows: file, line, reason, value."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for row in self._rejected(np.flatnonzero(self._facts.reason >= 0)):
                entry = {"file": row.file, "line": row.line, "reason": row.reason.value}
                file.write(json.dumps({**entry, "value": row.value}, ensure_ascii=False) + "\n")

    def counts(self) -> dict[str, Any]:
        """Return the counts as they stand in the manifest under ``rows``."""
        facts = self._facts
        totals = _count(facts, slice(None))
        by_file = {
            file: _count(facts, slice(begin, end))
            for file, begin, end in zip(
                self._files, facts.file_starts[:-1], facts.file_starts[1:], strict=True
            )
        }
        return {**totals, "by_file": by_file}

    def _rejected(self, rows: IntArray) -> Iterator[RejectedRow]:
        """Yield rejections in order, a block at a time."""
        facts, starts = self._facts, self._spool.starts
        blocks = np.searchsorted(starts, rows, side="right") - 1
        for part in np.split(rows, np.flatnonzero(np.diff(blocks)) + 1) if len(rows) else []:
            columns = [self._spool.take(name, part) for name in ("line", "value", "text")]
            for row, line, value, text in zip(part, *map(_as_list, columns), strict=True):
                reason = REASONS[facts.reason[row]]
                file = self._files[facts.file_of(int(row))]
                yield reject(file, line, reason, value or text)


def bad_row_error(row: RejectedRow) -> DataError:
    """Return the error for a bad row under ``on_bad_rows: fail``."""
    return DataError(
        f"bad row: {row.reason.replace('_', ' ')}",
        place=f"{row.file}:{row.line}",
        value=row.value,
        remedy="Correct the row, or set data.on_bad_rows to quarantine.",
    )


def _count(facts: RowFacts, rows: slice) -> dict[str, Any]:
    reason, split = facts.reason[rows], facts.split[rows]
    by_reason = np.bincount(reason[reason > NO_REASON], minlength=len(REASONS))
    counts = {
        "read": len(reason),
        "kept": int((split > NO_SPLIT).sum()),
        "rejected": int(by_reason.sum()),
        "not_sampled": int((reason == NOT_SAMPLED).sum()),
    }
    read, kept, rejected, not_sampled = counts.values()
    assert read == kept + rejected + not_sampled, counts
    names = sorted(
        (REASONS[index].value, int(by_reason[index])) for index in by_reason.nonzero()[0]
    )
    return {**counts, "rejected_by_reason": dict(names)}


def _as_list(column: Any) -> list[Any]:
    return list(column.to_pylist())


def first_bad(reasons: NDArray[np.int8]) -> int | None:
    """Return the position of the first bad row of a block."""
    found = np.flatnonzero(np.isin(reasons, _BAD_REASONS))
    return int(found[0]) if len(found) else None
