"""Real HTTP requests against a served bundle, timed from the client's side."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from pipeline.contract.errors import CommandError

_PREDICT = "/v1/predict"
_READY = "/readyz"


@dataclass(frozen=True, kw_only=True)
class TrafficFigures:
    """What the client saw."""

    num_requests: int
    num_correct: int | None
    """Answers equal to the expected label; None where none was expected."""
    num_connections: int
    p50_ms: float
    p99_ms: float
    requests_per_s: float


def wait_until_healthy(
    base_url: str, *, is_alive: Callable[[], bool], log: Path, timeout_s: float = 120.0
) -> None:
    """Return when ``/readyz`` answers 200; ``log`` is where the server's own words are.

    Raises:
        CommandError: the server ended, or did not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if (
                httpx.get(f"{base_url}{_READY}", timeout=5.0, trust_env=False).status_code
                == httpx.codes.OK
            ):
                return
        except httpx.TransportError:
            pass  # Refused until the proxy listens: the deadline below tells a real failure.
        if not is_alive():
            raise CommandError(
                "the server ended before it was healthy", place=base_url, remedy=f"See {log}."
            )
        time.sleep(0.25)
    raise CommandError(
        f"the server was not healthy within {timeout_s:.0f} s",
        place=base_url,
        remedy=f"See {log}.",
    )


def send_texts(
    base_url: str,
    texts: Sequence[str],
    *,
    labels: Sequence[str] | None,
    num_connections: int = 8,
) -> TrafficFigures:
    """Send each text once over ``num_connections`` connections and time every answer.

    Raises:
        CommandError: an answer is not 200.
    """
    with httpx.Client(base_url=base_url, timeout=60.0, trust_env=False) as client:
        _predict(client, texts[0])
        started = time.monotonic()
        with ThreadPoolExecutor(num_connections) as pool:
            answers = list(pool.map(lambda text: _predict(client, text), texts))
        took_s = time.monotonic() - started
    times_ms = np.array([answer[1] for answer in answers])
    num_correct = None
    if labels is not None:
        num_correct = sum(answer[0] == label for answer, label in zip(answers, labels, strict=True))
    return TrafficFigures(
        num_requests=len(texts),
        num_correct=num_correct,
        num_connections=num_connections,
        p50_ms=float(np.percentile(times_ms, 50)),
        p99_ms=float(np.percentile(times_ms, 99)),
        requests_per_s=len(texts) / took_s,
    )


def _predict(client: httpx.Client, text: str) -> tuple[str | None, float]:
    started = time.monotonic()
    response = client.post(_PREDICT, json={"text": text})
    took_ms = (time.monotonic() - started) * 1000.0
    if response.status_code != httpx.codes.OK:
        raise CommandError(
            f"the server answered {response.status_code}: {response.text[:300]}", place=_PREDICT
        )
    return response.json().get("label"), took_ms
