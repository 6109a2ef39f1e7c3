"""The sockets on which this process listens; no Ray."""

import os
import socket
from pathlib import Path

_OPEN_FILES = Path("/dev/fd")
_OF_IP = (socket.AF_INET, socket.AF_INET6)


def send_at_once() -> int:
    """Have connections that are accepted from now on send each part at once.

    asyncio asks for that itself, but not where a socket was made without naming TCP, as Ray Serve
    2.60 makes its own. The head and the body of an answer are two writes, and the second waits
    until the client has acknowledged the first, which it may put off for 40 ms (Nagle's algorithm
    and delayed acknowledgement, RFC 1122, 4.2.3.2 and 4.2.3.4). Linux and BSD hand the option
    down to what is accepted.

    Returns:
        How many listening sockets of IP were found.
    """
    return sum(_sends_at_once(int(name)) for name in os.listdir(_OPEN_FILES))


def _sends_at_once(number: int) -> bool:
    try:
        copy = os.dup(number)
    except OSError:
        return False  # Closed since it was listed.
    try:
        ours = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return False  # Another kind of file.
    with ours:
        is_listening = ours.family in _OF_IP and bool(
            ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        )
        if is_listening:
            ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return is_listening
