"""Accounts for every row that was read: kept, rejected with a reason, or not sampled."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.contract.errors import BadRowsError, DataError
from pipeline.data.rows import RejectedRow

REJECTED_NAME = "rejected.jsonl"


class RowLedger:
    """Counts by file and the rejected rows; ``read = kept + rejected + not_sampled``."""

    def __init__(self, *, stops_at_bad_row: bool) -> None:
        """Start empty.

        Args:
            stops_at_bad_row: raise at the first bad row (``on_bad_rows: fail``).
        """
        self._stops_at_bad_row = stops_at_bad_row
        self._read: Counter[str] = Counter()
        self._not_sampled: Counter[str] = Counter()
        self._rejected: list[tuple[int, RejectedRow]] = []

    @property
    def num_read(self) -> int:
        """Rows read so far, over all files; the next row's ``row_id``."""
        return self._read.total()

    @property
    def rejected(self) -> list[RejectedRow]:
        """The rejected rows, in the order of the files."""
        return [row for _, row in sorted(self._rejected, key=lambda entry: entry[0])]

    def add_read(self, file: str) -> None:
        """Count a row of a file."""
        self._read[file] += 1

    def add_not_sampled(self, file: str) -> None:
        """Count a good row that the sample leaves out."""
        self._not_sampled[file] += 1

    def add_rejected(self, row_id: int, row: RejectedRow) -> None:
        """Keep a rejected row.

        Raises:
            DataError: the row is bad and the ledger stops at bad rows.
        """
        if self._stops_at_bad_row and row.reason.is_bad:
            raise DataError(
                f"bad row: {row.reason.replace('_', ' ')}",
                place=f"{row.file}:{row.line}",
                value=row.value,
                remedy="Correct the row, or set data.on_bad_rows to quarantine.",
            )
        self._rejected.append((row_id, row))

    def check_bad_share(self, max_bad_share: float, *, report: Path) -> None:
        """Stop when too many of the rows are bad, and write them down for people first.

        Duplicates and rows outside the sample are not bad.

        Raises:
            BadRowsError: the share of bad rows is over the limit.
        """
        bad = Counter(row.reason.value for row in self.rejected if row.reason.is_bad)
        if bad.total() <= max_bad_share * self.num_read:
            return
        report.parent.mkdir(parents=True, exist_ok=True)
        self.write_rejected(report)
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in bad.most_common())
        first = next(row for row in self.rejected if row.reason.is_bad)
        raise BadRowsError(
            f"{bad.total():,} of {self.num_read:,} rows are bad ({reasons}), over "
            f"data.max_bad_share {max_bad_share}",
            place=f"{first.file}:{first.line}",
            remedy=f"Every one is in {report}. Correct them, or raise data.max_bad_share.",
        )

    def write_rejected(self, path: Path) -> None:
        """Write one JSON object a line: file, line, reason, value."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for row in self.rejected:
                entry = {"file": row.file, "line": row.line, "reason": row.reason.value}
                file.write(json.dumps({**entry, "value": row.value}, ensure_ascii=False) + "\n")

    def counts(self) -> dict[str, Any]:
        """Return the counts as they stand in the manifest under ``rows``."""
        rejected = Counter(row.file for _, row in self._rejected)
        reasons = Counter(row.reason.value for _, row in self._rejected)
        by_file = {
            file: _sum_up(self._read[file], rejected[file], self._not_sampled[file])
            for file in self._read
        }
        totals = _sum_up(self.num_read, rejected.total(), self._not_sampled.total())
        return {
            **totals,
            "rejected_by_reason": dict(sorted(reasons.items())),
            "by_file": by_file,
        }


def _sum_up(read: int, rejected: int, not_sampled: int) -> dict[str, int]:
    kept = read - rejected - not_sampled
    return {"read": read, "kept": kept, "rejected": rejected, "not_sampled": not_sampled}
