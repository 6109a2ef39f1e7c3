"""Writes results to standard output, be it a terminal, a file or `head`, in any encoding."""

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from pipeline.contract.errors import ConfigError

_ESCAPE = "textlane_escape"


@contextmanager
def any_output() -> Iterator[None]:
    """Let what is printed within fail neither for want of a character nor of a reader.

    A character that standard output's encoding lacks is written as JSON escapes it, so that
    JSON stays JSON. A reader that has left, such as `head`, is no mistake.

    Raises:
        ConfigError: a file's name cannot be written in this locale's encoding.
        OSError: what was printed last could not be written, such as to a full disk.
    """
    _escape_what_is_lacking()
    try:
        yield
    except UnicodeEncodeError as error:
        if codecs.lookup(sys.getfilesystemencoding()).name == "utf-8":
            raise
        raise ConfigError(
            f"this locale's encoding, {sys.getfilesystemencoding()}, lacks characters of a name",
            value=error.object,
            remedy="Set PYTHONUTF8=1, or LC_ALL to a UTF-8 locale such as C.UTF-8.",
        ) from error
    finally:
        _flush()


def print_text(text: str) -> bool:
    """Print text, its last line ended, that may be long or hold characters the terminal lacks.

    Returns:
        Whether somebody still reads; what is printed after that is dropped.
    """
    _escape_what_is_lacking()
    try:
        print(text.removesuffix("\n"))
    except BrokenPipeError:
        _give_up()
        return False
    return _flush()


def _flush() -> bool:
    output: TextIO | None = sys.stdout
    if output is None:  # Closed before this process started, as by `>&-`.
        return False
    try:
        output.flush()
    except BrokenPipeError:
        _give_up()
        return False
    except OSError:
        _give_up()
        raise
    return True


def _give_up() -> None:
    # Python would complain once more at exit of what is still in the buffer.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _escape_what_is_lacking() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors != _ESCAPE:
        codecs.register_error(_ESCAPE, _escape)
        sys.stdout.reconfigure(errors=_ESCAPE)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    units = (lacking[place : place + 2].hex() for place in range(0, len(lacking), 2))
    return "".join(f"\\u{unit}" for unit in units), error.end
