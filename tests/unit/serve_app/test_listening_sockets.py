"""Answers leave at once, whoever made the socket."""

import asyncio
import os
import socket

from serve_app.listening_sockets import send_at_once


def test_connections_send_at_once_also_where_the_socket_does_not_name_tcp(tmp_path):
    told = asyncio.Event()
    found = []

    async def serve(_reader, writer):
        accepted = writer.get_extra_info("socket")
        found.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()
        await writer.wait_closed()
        told.set()

    async def go():
        # As Ray Serve makes it: asyncio leaves Nagle's algorithm on for a socket of protocol 0.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
            listening.bind(("127.0.0.1", 0))
            async with await asyncio.start_server(serve, sock=listening):
                for _ in range(2):
                    told.clear()
                    _, writer = await asyncio.open_connection(*listening.getsockname())
                    await told.wait()
                    writer.close()
                    await writer.wait_closed()
                    number = send_at_once()
                return number

    with (tmp_path / "other").open("w"):
        before = len(os.listdir("/dev/fd"))
        number = asyncio.run(go())
        after = len(os.listdir("/dev/fd"))

    assert found[0] == 0
    assert found[1] != 0
    assert number >= 1
    assert after == before
