"""Real HTTP requests against a served bundle, timed from the client's side."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

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


def is_ready(base_url: str) -> bool:
    """Return whether the server can answer; False too while nothing listens there."""
    try:
        response = httpx.get(f"{base_url}{_READY}", timeout=5.0, trust_env=False)
    except httpx.TransportError:
        return False
    return response.status_code == httpx.codes.OK


def send_texts(
    base_url: str,
    texts: Sequence[str],
    *,
    labels: Sequence[str] | None,
    num_connections: int = 8,
) -> TrafficFigures:
    """Send each text once over ``num_connections`` connections and time every answer.

    Raises:
        CommandError: an answer is not 200, or there is none.
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
    try:
        response = client.post(_PREDICT, json={"text": text})
    except httpx.HTTPError as error:
        raise CommandError(
            f"the server stopped answering: {type(error).__name__}: {error}",
            place=f"{client.base_url}{_PREDICT}",
            remedy="Its log names the reason; the folder of the logs is printed as it ends.",
        ) from None
    took_ms = (time.monotonic() - started) * 1000.0
    if response.status_code != httpx.codes.OK:
        raise CommandError(
            f"the server answered {response.status_code}: {response.text[:300]}", place=_PREDICT
        )
    return response.json().get("label"), took_ms
