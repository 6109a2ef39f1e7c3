"""Requests at a steady rate whose answers say which version gave them."""

import asyncio
import json
import random
import time
from dataclasses import dataclass

from clients import Meanwhile

from serve_app.load.client import HttpClient, NotHttpError
from serve_app.load.target import find_target


@dataclass(frozen=True)
class Seen:
    """One request: when it was asked, its status or the failed connection, and who answered."""

    asked_s: float
    status: int | str
    version: str
    was_hard: bool
    """Whether the text holds the word that the failing version lacks."""


class Load(Meanwhile):
    """Requests at a steady rate from a thread of its own, until the block ends."""

    def __init__(self, base_url, *, rate):
        self.seen = []
        self._url, self._rate = base_url, rate
        super().__init__(lambda: asyncio.run(self._ask_all()))

    async def _ask_all(self):
        client = HttpClient(find_target(f"{self._url}/v1/predict", is_mine=False))
        rng, tasks = random.Random(7), set()
        while not self._is_over.is_set():
            task = asyncio.ensure_future(self._ask(client, rng))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await asyncio.sleep(rng.expovariate(self._rate))
        await asyncio.gather(*tasks)
        client.close()

    async def _ask(self, client, rng):
        words = rng.choices(["the", "film", "is", "in"], k=rng.randrange(5))
        was_hard = rng.random() < 0.1
        text = " ".join([*words, "oslo" if was_hard else rng.choice(["good", "bad", "fun"])])
        asked_s, until_s = time.monotonic(), asyncio.get_running_loop().time() + 60
        try:
            reply = await client.post(json.dumps({"text": text}).encode(), until_s=until_s)
        except (OSError, NotHttpError) as error:
            self.seen.append(Seen(asked_s, type(error).__name__, "", was_hard))
            return
        version = json.loads(reply.body).get("version", "") if reply.status == 200 else ""
        self.seen.append(Seen(asked_s, reply.status, version, was_hard))
