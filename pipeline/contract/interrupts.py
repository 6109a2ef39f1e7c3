"""Signals that ask a command to stop: all of them end it as Ctrl-C does."""

import signal
from types import FrameType
from typing import NoReturn


def heed_stop_signals() -> None:
    """Let SIGTERM, and SIGHUP unless it is ignored, raise KeyboardInterrupt in this process.

    Their own effect would skip every ``finally`` and leave what the command started running.
    """
    signal.signal(signal.SIGTERM, _stop_like_interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Ignored under nohup.
        signal.signal(signal.SIGHUP, _stop_like_interrupt)


def _stop_like_interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    # `timeout` sends its signal twice, to the command and to its group: the second one must
    # not break off the cleaning up that the first one began.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
