"""A tiny HTTP service on loopback for the load generator, and an event loop whose time is ours."""

import asyncio
import json
import selectors
import threading

ANSWER = {"request_id": "r", "model": "m", "label": "good", "score": 0.9, "num_tokens": 4}


class TinyServer:
    """Answers each request as ``answer(number, text)`` says; it lives in a thread of its own.

    ``answer`` returns (seconds to wait, status, body as object or bytes), or None to close the
    connection without a word.
    """

    def __init__(self, answer):
        self.requests = []
        self.num_connections = 0
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self):
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self.port = started.result(10)
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _stop(self):
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        self.num_connections += 1
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                line, *rest = head.strip().split("\r\n")
                headers = dict(row.lower().split(": ", 1) for row in rest)
                body = await reader.readexactly(int(headers["content-length"]))
                number = len(self.requests)
                self.requests.append((line, headers, json.loads(body)))
                decided = self._answer(number, json.loads(body)["text"])
                if decided is None:
                    return
                await asyncio.sleep(decided[0])
                writer.write(as_http(*decided[1:]))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # The client or the test is done.
        finally:
            writer.close()


def as_http(status, body, *more):
    """Return an HTTP answer's bytes; bytes as body are sent as they are."""
    if isinstance(body, bytes) and status is None:
        return body
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", *more]
    return "\r\n".join([*lines, "", ""]).encode() + data


def answered(lane="short", wait_s=0.0):
    return wait_s, 200, {**ANSWER, "lane": lane}


def failed(status, code, message="no"):
    return 0.0, status, {"error": {"code": code, "message": message, "request_id": "r"}}


class _NoWait(selectors.DefaultSelector):
    def __init__(self):
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout=None):
        assert timeout is not None, "everything waits for nothing"
        self.now_s += max(timeout, 0.0)
        return super().select(0)


def run_in_own_time(coroutine):
    """Run a coroutine on an event loop whose clock jumps to the next timer: nothing sleeps."""
    selector = _NoWait()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(coroutine)
