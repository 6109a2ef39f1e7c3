"""Reads metrics and answers of a running service over HTTP."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from cluster.doctor.samples import Scrape, read_samples
from pipeline.contract.errors import CommandError

_TIMEOUT_S = 5.0
_MOST_BYTES = 64 * 1024 * 1024
_MOST_ANSWER_BYTES = 1024 * 1024
_READINGS = 8


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What ``/readyz`` said."""

    is_ready: bool
    answer: str


class Scraper:
    """Reads pages over HTTP, each within some 5 s; metrics up to 64 MiB, answers to 1 MiB."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the time."""
        self._clock, self._sleep = clock, sleep
        self._certificates = httpx.create_ssl_context(trust_env=False)  # Read once, not each time.

    def scrape(self, targets: Sequence[str]) -> Scrape:
        """Return the samples of all targets that answer now.

        Raises:
            CommandError: none does, or one's page holds no metrics.
        """
        pages, problems = {}, []
        now_s = self._clock()
        for target in targets:
            try:
                pages[target] = self._read(target)
            except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
                problems.append(f"{target}: {error or type(error).__name__}")
        if not pages:
            raise CommandError(
                f"no metrics could be read: {'; '.join(problems) or 'there is no target'}",
                remedy="Start `textlane serve`, or give the metrics URL that it prints with "
                "--metrics.",
            )
        samples = [
            sample for target, text in pages.items() for sample in read_samples(text, place=target)
        ]
        return Scrape(time_s=now_s, samples=tuple(samples))

    def serves_session(self, targets: Sequence[str], session: str) -> bool:
        """Return whether a target answers with metrics of this session of Ray.

        Rays share some of their ports, so that what answers may be another one.
        """
        for target in targets:
            try:
                if f'SessionName="{session}"' in self._read(target):
                    return True
            except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, CommandError):
                continue
        return False

    def watch(self, targets: Sequence[str], *, seconds: float) -> list[Scrape]:
        """Return scrapes from now until ``seconds`` later, evenly spread, the last at the end.

        Raises:
            CommandError: the metrics cannot be read, or no longer.
        """
        began_s = self._clock()
        found = [self.scrape(targets)]
        for number in range(1, _READINGS + 1):
            due_s = began_s + seconds * number / _READINGS
            self._sleep(max(0.0, due_s - self._clock()))
            found.append(self.scrape(targets))
        return found

    def readiness(self, base_url: str) -> Readiness:
        """Return whether the service says that it is ready."""
        try:
            status, content = self._fetch(f"{base_url}/readyz", most_bytes=_MOST_ANSWER_BYTES)
        except (httpx.HTTPError, httpx.InvalidURL, CommandError) as error:
            return Readiness(is_ready=False, answer=str(error) or type(error).__name__)
        text = f"{status}: {content.decode(errors='replace')[:200]}"
        return Readiness(is_ready=status == httpx.codes.OK, answer=text)

    def model(self, base_url: str, *, api_key: str | None) -> dict[str, Any] | None:
        """Return what ``/v1/model`` says; None where it does not, such as for want of a key."""
        headers = {"X-API-Key": api_key} if api_key else {}
        try:
            _, answer = self._fetch(
                f"{base_url}/v1/model", most_bytes=_MOST_ANSWER_BYTES, headers=headers
            )
            content = json.loads(answer)
        except (httpx.HTTPError, httpx.InvalidURL, CommandError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) and "version" in content else None

    def _read(self, url: str) -> str:
        """Return a page of metrics.

        Raises:
            httpx.HTTPError: it cannot be had.
            CommandError: it is too long.
        """
        status, content = self._fetch(url, most_bytes=_MOST_BYTES)
        if status != httpx.codes.OK:
            raise httpx.HTTPError(f"status {status}")
        return content.decode("utf-8")

    def _fetch(
        self, url: str, *, most_bytes: int, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return status and body.

        Raises:
            httpx.HTTPError: it cannot be had, or does not end in time.
            CommandError: it is too long.
        """

        async def in_time() -> tuple[int, bytes]:
            # httpx's own timeout is of each part that comes, so that drops would never end,
            # be they of the head or of the body.
            async with asyncio.timeout(_TIMEOUT_S):
                return await self._stream(url, most_bytes=most_bytes, headers=headers)

        try:
            return asyncio.run(in_time())
        except TimeoutError:
            raise httpx.ReadTimeout(f"no end within {_TIMEOUT_S:g} s") from None

    async def _stream(
        self, url: str, *, most_bytes: int, headers: Mapping[str, str] | None
    ) -> tuple[int, bytes]:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=None, verify=self._certificates) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            content = bytearray()
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > most_bytes:
                    raise CommandError(f"a page of over {most_bytes} bytes", place=url)
            return answer.status_code, bytes(content)
