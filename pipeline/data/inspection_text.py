"""An inspection as tables for people or JSON for programs."""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from pydantic import BaseModel
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.data.inspection import BucketFigures, Inspection, RowExample

_MAX_LABELS = 40
_MAX_FILES = 20
_PLAIN_WIDTH = 160
"""Of lines that go to a file or pipe; room for every column, with some of each text."""
_COUNTS_CELLS = 60
"""Room that the counts of three splits may take beside a label."""
_EXAMPLE_CELLS = 64
"""Room that the other columns of the examples may take."""


@dataclass(frozen=True, kw_only=True)
class _Column:
    name: str
    is_number: bool = True


def as_json(inspection: Inspection) -> str:
    """Return the inspection as JSON in ASCII, so that no terminal obeys what texts hold."""
    values = {name: _plain(getattr(inspection, name)) for name in inspection.__dataclass_fields__}
    # ASCII keeps 0x7f (delete) as it is.
    return json.dumps(values, indent=2, ensure_ascii=True).replace("\x7f", "\\u007f")


def as_tables(inspection: Inspection, *, width: int | None) -> str:
    """Return the inspection as text.

    Args:
        inspection: what to show.
        width: columns of the terminal; None gives plain lines for a file or pipe.
    """
    file = io.StringIO()
    console = Console(
        file=file,
        width=width or _PLAIN_WIDTH,
        force_terminal=width is not None,
        highlight=False,
        markup=False,
        soft_wrap=False,
    )
    task = f"{inspection.task}, {len(inspection.splits['train'].label_counts)} labels"
    console.print(Text(f"{printable(inspection.folder)} ({task})", style="bold"), soft_wrap=True)
    is_plain = width is None
    for table in [
        _rows_table(inspection),
        *([_files_table(inspection)] if len(inspection.rows.by_file) > 1 else []),
        _splits_table(inspection),
        _lengths_table(inspection),
        _labels_table(inspection, room=console.width),
        _buckets_table(inspection.buckets, shortest=inspection.splits["train"].lengths.min),
        _padding_table(inspection),
        _examples_table("longest rows", inspection.longest, room=console.width),
        _examples_table("shortest rows", inspection.shortest, room=console.width),
    ]:
        table.box = None if is_plain else box.SIMPLE_HEAD
        if is_plain:
            console.print()
        console.print(table)
    picture = inspection.picture or "none in the folder; --picture FILE.svg draws one"
    if is_plain:
        console.print()
    console.print(Text(f"picture: {printable(picture)}"), soft_wrap=True)
    lines = file.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def printable(text: str) -> str:
    r"""Return a text in which whatever is not a visible character is written as an escape.

    Example: an escape sequence ``ESC [ 2 J`` -> ``\x1b[2J``, a line break -> ``\n``.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value  # type: ignore[call-overload]


def _table(title: str, columns: Sequence[_Column]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(
            Text(printable(column.name)),
            justify="right" if column.is_number else "left",
            no_wrap=True,
        )
    return table


def _words(*names: str) -> list[_Column]:
    return [_Column(name=name, is_number=False) for name in names]


def _numbers(*names: str) -> list[_Column]:
    return [_Column(name=name) for name in names]


def _fill(table: Table, rows: Iterable[Sequence[str | int]]) -> Table:
    for row in rows:
        cells = [Text(f"{cell:,}" if isinstance(cell, int) else cell) for cell in row]
        table.add_row(*cells)
    return table


def _name(text: str, cells: int = 32) -> str:
    shown = Text(printable(text))
    shown.truncate(cells, overflow="ellipsis")
    return shown.plain


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _rows_table(inspection: Inspection) -> Table:
    rows = inspection.rows
    entries = [("read", rows.read), ("kept", rows.kept), ("not sampled", rows.not_sampled)]
    entries.append(("rejected", rows.rejected))
    reasons = sorted(rows.rejected_by_reason.items(), key=lambda item: (-item[1], item[0]))
    entries += [(f"  {_name(reason.replace('_', ' '))}", count) for reason, count in reasons]
    entries.append(("truncated", rows.truncated))
    table = _table("rows of the input", [*_words(""), *_numbers("rows", "share")])
    return _fill(table, [(name, count, _share(count, rows.read)) for name, count in entries])


def _files_table(inspection: Inspection) -> Table:
    files = list(inspection.rows.by_file.items())
    columns = [*_words("file"), *_numbers("read", "kept", "not sampled", "rejected")]
    table = _fill(
        _table("rows by file", columns),
        [
            (_name(file, 60), rows.read, rows.kept, rows.not_sampled, rows.rejected)
            for file, rows in files[:_MAX_FILES]
        ],
    )
    if len(files) > _MAX_FILES:
        table.add_row(f"… {len(files) - _MAX_FILES:,} more")
    return table


def _splits_table(inspection: Inspection) -> Table:
    columns = [*_words("split"), *_numbers("rows", "tokens", "windowed texts", "their rows")]
    return _fill(
        _table("splits", columns),
        [
            (name, split.rows, split.tokens, split.windowed_texts, split.windows)
            for name, split in inspection.splits.items()
        ],
    )


def _lengths_table(inspection: Inspection) -> Table:
    names = ("min", "p1", "p10", "p50", "p90", "p99", "max")
    return _fill(
        _table("tokens of a row", [*_words("split"), *_numbers(*names, "mean")]),
        [
            (
                name,
                *(int(getattr(split.lengths, figure)) for figure in names),
                f"{split.lengths.mean:,.1f}",
            )
            for name, split in inspection.splits.items()
        ],
    )


def _labels_table(inspection: Inspection, *, room: int) -> Table:
    splits = inspection.splits
    train = splits["train"].label_counts
    labels = sorted(train, key=lambda label: -train[label])
    unit = "words" if inspection.task == "token_classification" else "rows"
    columns = [column for name in splits for column in _numbers(name, "share")]
    table = _table(f"labels, and their share of the {unit}", [*_words("label"), *columns])
    half = _MAX_LABELS // 2
    is_cut = len(labels) > _MAX_LABELS

    def line(label: str) -> list[str | int]:
        cells: list[str | int] = [_name(label, min(32, max(12, room - _COUNTS_CELLS)))]
        for split in splits.values():
            count = split.label_counts[label]
            cells += [count, _share(count, split.labelled)]
        return cells

    _fill(table, [line(label) for label in (labels[:half] if is_cut else labels)])
    if is_cut:
        table.add_row(f"… {len(labels) - 2 * half:,} more")
        _fill(table, [line(label) for label in labels[-half:]])
    if any(split.unlabelled_rows for split in splits.values()):
        none: list[str | int] = ["(no label)"]
        for split in splits.values():
            none += [split.unlabelled_rows, _share(split.unlabelled_rows, split.rows)]
        _fill(table, [none])
    return table


def _buckets_table(buckets: Sequence[BucketFigures], *, shortest: int) -> Table:
    columns = _numbers("tokens of a row", "rows", "tokens", "padding to edge", "in training")
    begins = [shortest, *(bucket.edge + 1 for bucket in buckets[:-1])]
    return _fill(
        _table("buckets of the train rows", columns),
        [
            (
                f"{begin:,}–{bucket.edge:,}" if begin < bucket.edge else f"{bucket.edge:,}",
                bucket.rows,
                bucket.tokens,
                f"{bucket.padding_to_edge:.1%}",
                f"{bucket.padding:.1%}",
            )
            for begin, bucket in zip(begins, buckets, strict=True)
        ],
    )


def _padding_table(inspection: Inspection) -> Table:
    padding = inspection.padding
    shares = [padding.random, padding.buckets, padding.buckets_window]
    table = _table("padding", _numbers("random order", "buckets", "buckets + window"))
    return _fill(table, [[f"{share:.1%}" for share in shares]])


def _examples_table(title: str, examples: Sequence[RowExample], *, room: int) -> Table:
    columns = [*_words("split"), *_numbers("row", "tokens"), *_words("labels", "text")]
    rows = []
    for example in examples:
        row = f"{example.row_id}" + (f".{example.window}" if example.window else "")
        labels = " ".join(example.labels) or "-"
        text = f"{example.text} ‖ {example.text_pair}" if example.text_pair else example.text
        shown = _name(text, max(16, room - _EXAMPLE_CELLS))
        rows.append((example.split, row, example.tokens, _name(labels, 24), shown))
    return _fill(_table(title, columns), rows)
