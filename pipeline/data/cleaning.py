"""Cleans one row that was read, and gives it the hashes by which it is judged later."""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

from pipeline.config import DataSettings, Task
from pipeline.contract.tokenization import TextSettings, clean_text
from pipeline.data.rows import RejectedRow, RejectReason, SourceRow, reject

_TEXT_HASH_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class ReadRecipe:
    """All that a worker process needs to read and clean as every other one does."""

    data: DataSettings
    task: Task
    settings: TextSettings
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanRow:
    """One usable row."""

    line: int
    text: str
    """Cleaned text; the words joined by spaces for token labels."""
    text_pair: str
    """Cleaned second text, empty for single texts."""
    labels: tuple[str, ...]
    """Label names: one for a text (any number, sorted, for multi-label), one for each word."""
    split: str | None
    """Split that the file or a column gives it."""
    text_hash: bytes
    """First 16 bytes of the sha256 of the text, or of both texts; decides the split."""
    label_hash: bytes
    """8 bytes; equal means equal labels."""
    draw: bytes
    """8 bytes; decides the sample. Zeros where nothing is sampled."""


def clean_row(row: SourceRow, recipe: ReadRecipe) -> CleanRow | RejectedRow:
    """Return the row cleaned, or why it cannot be used."""
    text, text_pair = _clean_texts(row, recipe.settings)
    if isinstance(text, RejectReason):
        shown = row.text if row.words is None else " ".join(row.words)
        return reject(row.file, row.line, text, shown or row.text_pair or "")
    names = recipe.data.label_names
    unknown = [label for label in row.labels if names and label not in names]
    if unknown:
        return reject(row.file, row.line, RejectReason.UNKNOWN_LABEL, unknown[0])
    labels = tuple(names.get(label, label) for label in row.labels)
    if recipe.task is Task.MULTI_LABEL:
        labels = tuple(sorted(set(labels)))  # Two labels of the file may have one name.
    # No cleaned text holds a NUL, so no single text looks like a pair.
    both = f"{text}\0{text_pair}" if text_pair else text
    digest = hashlib.sha256(both.encode("utf-8")).digest()
    drawn = recipe.data.sample_rows is not None
    return CleanRow(
        line=row.line,
        text=text,
        text_pair=text_pair,
        labels=labels,
        split=row.split,
        text_hash=digest[:_TEXT_HASH_BYTES],
        label_hash=_hash_labels(labels),
        draw=hashlib.sha256(b"%d:%b" % (recipe.seed, digest)).digest()[:8] if drawn else bytes(8),
    )


def _clean_texts(row: SourceRow, settings: TextSettings) -> tuple[str | RejectReason, str]:
    if row.words is not None:
        words = [clean_text(word, settings) for word in row.words]
        if not all(words) or any(" " in word for word in words):
            return RejectReason.UNUSABLE_WORD, ""
        return " ".join(words) or RejectReason.EMPTY_TEXT, ""
    text = clean_text(row.text, settings)
    if row.text_pair is None:
        return text or RejectReason.EMPTY_TEXT, ""
    text_pair = clean_text(row.text_pair, settings)
    return text if text and text_pair else RejectReason.EMPTY_TEXT, text_pair


@lru_cache(maxsize=4096)
def _hash_labels(labels: tuple[str, ...]) -> bytes:
    return hashlib.sha256(json.dumps(labels).encode()).digest()[:8]
