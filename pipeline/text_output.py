"""Writes results to standard output, be it a terminal, a file or `head`."""

import io
import os
import sys


def print_text(text: str) -> None:
    """Print text that may be long or hold characters that the terminal lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text.rstrip("\n"), flush=True)
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
