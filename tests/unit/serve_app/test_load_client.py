"""The HTTP client against a real socket: connections kept, and each way to fail."""

import asyncio
import socket

import pytest
from load_server import TinyServer, answered, as_http, failed

from serve_app.load.client import HttpClient, NotHttpError
from serve_app.load.precise_loop import new_precise_loop
from serve_app.load.target import find_target

TEXT = b'{"text": "hello"}'


def post(url, count=1, *, at_once=False, timeout_s=5.0, api_key=None):
    async def go():
        client = HttpClient(find_target(url, is_mine=False), api_key=api_key)
        loop = asyncio.get_running_loop()

        async def one():
            try:
                return await client.post(TEXT, until_s=loop.time() + timeout_s)
            except (OSError, NotHttpError) as error:
                return error

        try:
            if at_once:
                return await asyncio.gather(*[one() for _ in range(count)])
            return [await one() for _ in range(count)]
        finally:
            client.close()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=new_precise_loop) as runner:
        return runner.run(go())


def test_requests_after_each_other_share_a_connection():
    with TinyServer(lambda *_: answered()) as server:
        replies = post(server.url, 5)

    assert [reply.status for reply in replies] == [200] * 5
    assert server.num_connections == 1
    line, headers, body = server.requests[0]
    assert line == "POST /v1/predict HTTP/1.1"
    assert headers["host"] == f"127.0.0.1:{server.port}"
    assert "x-api-key" not in headers
    assert body == {"text": "hello"}


@pytest.mark.slow
def test_requests_at_the_same_time_wait_for_no_connection():
    with TinyServer(lambda *_: answered(wait_s=0.2)) as server:
        replies = post(server.url, 40, at_once=True)

    assert [reply.status for reply in replies] == [200] * 40
    assert server.num_connections == 40


@pytest.mark.parametrize(
    ("header", "expected_s"),
    [
        ("Retry-After: 3", 3.0),
        ("retry-after: 99999", 60.0),
        ("Retry-After: Wed, 02 Dec 2026 07:28:00 GMT", 0.0),
        ("X-Other: 3", 0.0),
    ],
)
def test_the_seconds_that_the_service_asks_to_wait_are_of_that_answer_alone(header, expected_s):
    def answer(number, _text):
        if number:
            return answered()
        return 0.0, None, as_http(429, {"error": {"code": "overloaded"}}, header)

    with TinyServer(answer) as server:
        refused, served = post(server.url, 2)

    assert (refused.status, refused.retry_after_s) == (429, expected_s)
    assert (served.status, served.retry_after_s) == (200, 0.0)


def test_the_key_is_sent():
    with TinyServer(lambda *_: answered()) as server:
        post(server.url, api_key="k1")

    assert server.requests[0][1]["x-api-key"] == "k1"


def test_an_error_answer_is_an_answer():
    with TinyServer(lambda *_: failed(503, "not_ready")) as server:
        (reply,) = post(server.url)

    assert (reply.status, b"not_ready" in reply.body) == (503, True)


def test_a_closed_connection_is_not_used_again():
    closing = as_http(200, {"lane": "short"}, "Connection: close")
    with TinyServer(lambda *_: (0.0, None, closing)) as server:
        replies = post(server.url, 3)

    assert [reply.status for reply in replies] == [200] * 3
    assert server.num_connections == 3


def test_chunks_and_interim_answers_are_read():
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    data += b'3\r\n{"a\r\n4\r\n": 1\r\n1\r\n}\r\n0\r\n\r\n'
    with TinyServer(lambda *_: (0.0, None, data)) as server:
        replies = post(server.url, 2)

    assert [(reply.status, reply.body) for reply in replies] == [(200, b'{"a": 1}')] * 2


@pytest.mark.slow
def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_ones():
    def slow_first(number, _):
        return answered(lane=f"lane{number}", wait_s=0.3 if number == 0 else 0.0)

    with TinyServer(slow_first) as server:
        first, second = post(server.url, 2, timeout_s=0.2)

    assert isinstance(first, TimeoutError)
    assert b"lane1" in second.body


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, ConnectionResetError),
        ((0.0, None, b"SSH-2.0-OpenSSH\r\n"), NotHttpError),
        ((0.0, None, as_http(200, {})[:-1]), TimeoutError),
    ],
)
def test_each_way_to_fail_has_its_exception(answer, kind):
    with TinyServer(lambda *_: answer) as server:
        first, second = post(server.url, 2, timeout_s=0.2)

    assert type(first) is type(second) is kind


def test_nobody_listening_is_a_refused_connection():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

        (error,) = post(f"http://127.0.0.1:{port}")

    assert type(error) is ConnectionRefusedError


def test_timers_are_exact_to_less_than_a_millisecond():
    async def lateness():
        loop = asyncio.get_running_loop()
        late = []
        for _ in range(50):
            due = loop.time() + 0.0005
            await asyncio.sleep(0.0005)
            late.append(loop.time() - due)
        return sorted(late)

    with asyncio.Runner(loop_factory=new_precise_loop) as runner:
        late = runner.run(lateness())

    # The best of 50: epoll alone would be 0.5 ms late each time, a busy machine only often.
    assert 0.0 <= late[0] < 0.0004
