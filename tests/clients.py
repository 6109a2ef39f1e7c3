"""Many clients at once, each with a text whose right label it knows."""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass

from serve_app.load.client import HttpClient, NotHttpError
from serve_app.load.target import find_target

MEANING = {"good": "positive", "fun": "positive", "bad": "negative", "dull": "negative"}
FILLER = ("the", "film", "is", "in")


def make_text(rng, *, most_words=13):
    """Return a text of a random length and its label under the tiny bundle."""
    word = rng.choice(sorted(MEANING))
    words = [*rng.choices(FILLER, k=rng.randrange(most_words)), word]
    rng.shuffle(words)
    return " ".join(words), MEANING[word]


@dataclass(frozen=True)
class Seen:
    """What one request met: a status, or the name of what went wrong with its connection."""

    asked_s: float
    outcome: int | str
    is_right: bool
    body: bytes = b""


class Meanwhile:
    """Work in a thread of its own that looks whether its block is over, and ends then."""

    def __init__(self, work):
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=work)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._is_over.set()
        self._thread.join()


class Crowd(Meanwhile):
    """Clients in a thread of their own that ask without pause until the block ends."""

    def __init__(self, base_url, *, num_clients=16, leavers=0.0, most_requests=None):
        self.seen = []
        self.num_left = 0
        self._url, self._num_clients, self._leavers = base_url, num_clients, leavers
        self._left_to_ask = most_requests
        super().__init__(lambda: asyncio.run(self._ask_all()))

    async def _ask_all(self):
        client = HttpClient(find_target(f"{self._url}/v1/predict", is_mine=False))
        await asyncio.gather(
            *(self._ask(client, random.Random(number)) for number in range(self._num_clients))
        )
        client.close()

    async def _ask(self, client, rng):
        loop = asyncio.get_running_loop()
        while not self._is_over.is_set():
            if self._left_to_ask is not None:
                self._left_to_ask -= 1
                if self._left_to_ask < 0:
                    return
            text, label = make_text(rng)
            asked_s, leaves = time.monotonic(), rng.random() < self._leavers
            patience_s = rng.uniform(0.0, 0.02) if leaves else 60.0
            try:
                body = json.dumps({"text": text}).encode()
                reply = await client.post(body, until_s=loop.time() + patience_s)
            except TimeoutError:
                assert leaves, "an answer never came"
                self.num_left += 1
                continue
            except (OSError, NotHttpError) as error:
                self.seen.append(Seen(asked_s, type(error).__name__, False))
                await asyncio.sleep(0.05)
                continue
            is_right = reply.status == 200 and json.loads(reply.body)["label"] == label
            body = b"" if is_right else reply.body
            self.seen.append(Seen(asked_s, reply.status, is_right, body))
            if reply.status != 200:
                await asyncio.sleep(0.05)

    def wait(self):
        """Return when all of ``most_requests`` are answered."""
        self._thread.join()

    def wait_for_answer(self, since_s, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while not any(one.asked_s > since_s and one.is_right for one in list(self.seen)):
            assert time.monotonic() < deadline, self.outcomes()
            time.sleep(0.05)

    def outcomes(self, *, since_s=0.0):
        return Counter(one.outcome for one in self.seen if one.asked_s >= since_s)

    def wrong(self):
        """Return the answers that are neither right nor a refusal."""
        return [one for one in self.seen if one.outcome == 200 and not one.is_right]
