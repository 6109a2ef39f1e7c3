"""Which processes of ours listen on which address, as the kernel tells it."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"
_PROC = Path("/proc")
_TITLES = (
    ("dashboard/dashboard.py", "Ray dashboard"),
    ("autoscaler/_private/monitor.py", "Ray monitor"),
    ("_private/log_monitor.py", "Ray log monitor"),
    ("cluster.local", "Ray driver"),
)


@dataclass(frozen=True, kw_only=True, order=True)
class ListeningPort:
    """One listening TCP socket of one of our processes."""

    address: str
    """The IP address that it is bound to; ``0.0.0.0`` and ``::`` are all interfaces."""
    port: int
    process: str
    """What the process is, for people: ``haproxy``, ``raylet``, ``ray::ServeReplica:…``."""

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def place(self) -> str:
        """Address and port, as in a URL."""
        return join_address(self.address, self.port)


def join_address(address: str, port: int) -> str:
    """Return ``127.0.0.1:8000`` or ``[::1]:8000``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def read_tcp_table(text: str) -> dict[str, tuple[str, int]]:
    """Return inode → address and port of each listening socket in ``/proc/net/tcp`` or ``tcp6``.

    An IPv4 address in IPv6 clothes is given as IPv4: ``::ffff:127.0.0.1`` is ``127.0.0.1``.
    """
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            found[fields[9]] = (_read_address(address), int(port, 16))
    return found


def _read_address(digits: str) -> str:
    """Return the address of the kernel's notation: words of 4 bytes, each in host order."""
    words = [digits[start : start + 8] for start in range(0, len(digits), 8)]
    # The kernel prints each word as a number; on a big-endian machine the bytes come in order.
    packed = b"".join(bytes.fromhex(word)[::-1] for word in words)
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def descendants(root: int, parents: Mapping[int, int]) -> set[int]:
    """Return ``root`` and every process below it.

    Args:
        root: a process id.
        parents: process id → id of its parent.
    """
    found = {root}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def running_parents() -> dict[int, int]:
    """Return process id → id of the parent for every process that runs now."""
    parents = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                # The name in parentheses may itself hold parentheses and spaces.
                after_name = (folder / "stat").read_text(errors="replace").rpartition(")")[2]
            except OSError:
                continue  # It ended while we looked.
            parents[int(folder.name)] = int(after_name.split()[1])
    return parents


def listening_ports(root: int) -> list[ListeningPort]:
    """Return what ``root`` and the processes below it listen on, in order of address and port.

    A socket that several processes share is listed once.
    """
    sockets: dict[str, tuple[str, int]] = {}
    for name in ("tcp", "tcp6"):
        table = _PROC / "net" / name
        if table.is_file():  # A kernel without IPv6 has no tcp6.
            sockets.update(read_tcp_table(table.read_text()))
    found = {}
    for pid in sorted(descendants(root, running_parents())):
        for inode in _socket_inodes(pid):
            if inode in sockets and inode not in found:
                address, port = sockets[inode]
                found[inode] = ListeningPort(
                    address=address, port=port, process=process_title(_command_line(pid))
                )
    return sorted(found.values())


def _socket_inodes(pid: int) -> Iterable[str]:
    try:
        links = list((_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return  # It ended while we looked.
    for link in links:
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]


def _command_line(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text.rstrip("\0").split("\0")


def process_title(command_line: list[str]) -> str:
    """Return a short name for a command line: ``/x/raylet --a`` is ``raylet``."""
    joined = " ".join(command_line)
    for sign, title in _TITLES:
        if sign in joined:
            return title
    words = joined.split()
    if not words:
        return "?"  # It ended while we looked.
    return words[0] if words[0].startswith("ray::") else Path(words[0]).name
