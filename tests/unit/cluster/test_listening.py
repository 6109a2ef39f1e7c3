"""Listening ports as the kernel's tables tell them."""

import os
import socket

import pytest

from cluster.listening import (
    ListeningPort,
    descendants,
    listening_ports,
    process_title,
    read_tcp_table,
    running_parents,
)

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"
REST = "00000000:00000000 00:00000000 00000000     0        0"


def table(*rows):
    lines = [
        f"   {number}: {local} {'0' * len(local.split(':')[0])}:0000 {state} {REST} {inode} 1 0"
        for number, (local, state, inode) in enumerate(rows)
    ]
    return "\n".join([HEAD, *lines, ""])


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ("0100007F:1F40", ("127.0.0.1", 8000)),
        ("00000000:20D4", ("0.0.0.0", 8404)),
        ("00000000000000000000000000000000:20D4", ("::", 8404)),
        ("00000000000000000000000001000000:1F40", ("::1", 8000)),
        ("0000000000000000FFFF00000100007F:1F40", ("127.0.0.1", 8000)),
    ],
)
def test_an_address_is_read_from_the_kernels_notation(local, expected):
    assert read_tcp_table(table((local, "0A", "77"))) == {"77": expected}


@pytest.mark.parametrize("state", ["01", "06", "08"])
def test_a_socket_that_does_not_listen_is_left_out(state):
    assert read_tcp_table(table(("0100007F:1F40", state, "77"))) == {}


@pytest.mark.parametrize("text", ["", HEAD, f"{HEAD}\n\nshort line\n"])
def test_a_table_without_rows_is_empty(text):
    assert read_tcp_table(text) == {}


def test_descendants_are_found_over_generations_and_others_are_not():
    assert descendants(1, {2: 1, 3: 2, 4: 3, 9: 8}) == {1, 2, 3, 4}


def test_a_port_of_this_process_is_listed_with_its_address_until_it_is_closed():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert port not in {found.port for found in listening_ports(os.getpid())}
        server.listen()

        (found,) = [found for found in listening_ports(os.getpid()) if found.port == port]

    assert (found.address, found.is_loopback) == ("127.0.0.1", True)
    assert found.place == f"127.0.0.1:{port}"
    assert running_parents()[os.getpid()] == os.getppid()


@pytest.mark.parametrize(
    ("address", "is_loopback"),
    [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("192.0.2.2", False)],
)
def test_only_loopback_addresses_count_as_closed(address, is_loopback):
    assert ListeningPort(address=address, port=1, process="x").is_loopback is is_loopback


@pytest.mark.parametrize(
    ("command_line", "title"),
    [
        (["/x/raylet", "--a"], "raylet"),
        (["ray::ServeReplica:textlane:Ingress"], "ray::ServeReplica:textlane:Ingress"),
        (["python", "-u", "/x/ray/dashboard/dashboard.py", "--port"], "Ray dashboard"),
        ([], "?"),
        ([""], "?"),
        ([" "], "?"),
    ],
)
def test_a_process_has_a_short_name(command_line, title):
    assert process_title(command_line) == title
