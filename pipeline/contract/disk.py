"""Turns a full disk into an error that says where and what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.contract.errors import FolderError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def explain_full_disk(folder: Path, *, needs: str) -> Iterator[None]:
    """Report a full disk under the name of the folder that is written.

    Args:
        folder: in errors.
        needs: how much room is needed, such as ``export needs ten times the model's size``.

    Raises:
        FolderError: the block ran out of space.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise FolderError(
            "the disk is full; what was begun is removed again",
            place=str(folder),
            remedy=f"Free space there ({needs}), or set output_dir to another disk.",
        ) from error
