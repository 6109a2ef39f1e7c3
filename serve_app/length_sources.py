"""Lengths of the texts that a tuning is for: from the bundle, a file or a shards folder."""

from pathlib import Path

import numpy as np

from pipeline.contract.batching import IntArray
from pipeline.contract.bundle import BundleManifest
from pipeline.contract.errors import ConfigError, DataError
from serve_app.tuning_choice import Lengths

_MOST_TOKENS = 1_000_000_000
_MOST_CHARS = 64 * 2**20
_REMEDY = "Write one whole number of tokens, 1 or more, on each line."


def lengths_of_training(manifest: BundleManifest) -> Lengths:
    """Return the lengths of the training texts, from the manifest's percentiles."""
    tokens = np.array(manifest.seq_len_percentiles, dtype=np.int64)
    return _count(tokens, "the training texts", manifest.limits.max_seq_len)


def read_lengths(file: Path, *, max_seq_len: int) -> Lengths:
    """Return the lengths in a text file of one number of tokens on each line.

    Longer than ``max_seq_len`` counts as that: serving cuts such texts. Empty lines are
    passed over.

    Raises:
        DataError: a line is no number of tokens, or there is none; names file, line, value.
        ConfigError: the file cannot be read or has no end.
    """
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(_MOST_CHARS + 1)
    except OSError as error:
        raise ConfigError(
            f"the lengths cannot be read: {error.strerror}",
            place=f"--lengths {file}",
            remedy="Name a text file with one number of tokens on each line.",
        ) from None
    if len(text) > _MOST_CHARS:
        raise ConfigError(
            f"has over {_MOST_CHARS:,} characters",
            place=f"--lengths {file}",
            remedy="A sample of some thousand lines is enough.",
        )
    tokens = [
        _as_tokens(line.strip(), place=f"{file}:{number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if not tokens:
        raise DataError("the file has no lengths", place=str(file), remedy=_REMEDY)
    return _count(np.array(tokens, dtype=np.int64), str(file), max_seq_len)


def lengths_of_shards(folder: Path, *, max_seq_len: int) -> Lengths:
    """Return the lengths of the test rows of a shards folder.

    Raises:
        ConfigError: pyarrow, which reads shards, is not installed.
        FolderError: (or a subtype) the folder is no shards folder of this version.
        DataError: it has no test rows.
    """
    try:
        # A serving install has no pyarrow, and no other command here needs it.
        from pipeline.contract.shards import load_shards
    except ImportError as error:
        raise ConfigError(
            f"shards cannot be read here: {error}",
            place=f"--shards {folder}",
            remedy="Install textlane[train], or write the lengths to a file for --lengths.",
        ) from None
    tokens = load_shards(folder).split("test").lengths
    if not len(tokens):
        raise DataError(
            "the shards have no test rows", place=str(folder), remedy="Use --lengths FILE."
        )
    return _count(tokens, f"the test rows of {folder}", max_seq_len)


def _as_tokens(text: str, *, place: str) -> int:
    # `int` would also take 1_000 and digits of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise DataError("not a number of tokens", place=place, value=text, remedy=_REMEDY)
    if not 1 <= int(text) <= _MOST_TOKENS:
        raise DataError("no text has so many tokens", place=place, value=text, remedy=_REMEDY)
    return int(text)


def _count(tokens: IntArray, source: str, max_seq_len: int) -> Lengths:
    distinct, counts = np.unique(np.clip(tokens, 1, max_seq_len), return_counts=True)
    return Lengths(
        source=source, tokens=distinct.astype(np.int64), shares=counts / float(counts.sum())
    )
