"""The road of one request: admit, tokenise, choose lanes, wait, build answers; no HTTP."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.errors import (
    DeadlineError,
    InferenceError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
)
from pipeline.contract.tokenization import TextEncoder
from serve_app.answers import build_answer
from serve_app.encoding import (
    EncodedRow,
    check_pairing,
    encode_pair,
    encode_texts,
    encode_words,
    name_places,
)
from serve_app.limits import LaneName
from serve_app.schemas import AnyAnswer, PredictRequest
from serve_app.served import Served

_HEALTH_TIMEOUT_S = 5.0
# Tokenising this many characters takes about a millisecond; more would hold up the loop.
_MAX_INLINE_CHARS = 8192


class Lane(Protocol):
    """A queue in front of model replicas."""

    async def score(self, input_ids: NDArray[np.int32]) -> NDArray[np.float32] | InferenceError:
        """Return a row's logits, or why the model gave none."""
        ...

    async def version(self) -> str:
        """Return the version that the lane serves."""
        ...


class PredictService:
    """Answers requests from the lanes, within limits; one for each ingress process."""

    def __init__(
        self, served: Served, *, encoder: TextEncoder, lanes: Mapping[LaneName, Lane]
    ) -> None:
        """Take a bundle, its tokenizer and the lanes that run its model."""
        self.served = served
        self._encoder = encoder
        self._lanes = lanes
        self._num_texts = 0

    async def predict(self, request: PredictRequest) -> list[AnyAnswer]:
        """Return one answer for each text of a request, in order.

        Raises:
            RequestError: (a subtype) the request cannot be answered as sent.
            OverloadedError: too many texts are in hand already.
            DeadlineError: the answer was not there in time.
            InferenceError: the model failed on a text.
        """
        limits = self.served.limits
        num_texts = len(request.texts) if request.texts is not None else 1
        if num_texts > limits.max_texts_per_request:
            raise InvalidRequestError(
                f"{num_texts} texts are over the limit of {limits.max_texts_per_request}",
                place="texts",
                remedy="Send them in several requests.",
            )
        with self._admitted(num_texts):
            try:
                async with asyncio.timeout(limits.request_timeout_s):
                    return await self._answer(request)
            except TimeoutError:
                raise DeadlineError(
                    f"no answer within {limits.request_timeout_s:g} s",
                    remedy="Send it again later, or send fewer texts at once.",
                ) from None

    async def check(self) -> None:
        """Return when every lane serves the same version as this process.

        Raises:
            NotReadyError: a lane does not answer or serves another version.
        """
        for name, lane in self._lanes.items():
            try:
                version = await asyncio.wait_for(lane.version(), _HEALTH_TIMEOUT_S)
            except TimeoutError:
                raise NotReadyError(f"the {name} lane does not answer") from None
            if version != self.served.version:
                raise NotReadyError(f"the {name} lane serves another version", value=version)

    @contextmanager
    def _admitted(self, num_texts: int) -> Iterator[None]:
        most = self.served.limits.max_queued_requests
        if self._num_texts + num_texts > most:
            raise OverloadedError(
                f"{self._num_texts} texts are in hand, {num_texts} more would pass {most}",
                remedy="Send it again after the seconds in Retry-After.",
            )
        self._num_texts += num_texts
        try:
            yield
        finally:
            self._num_texts -= num_texts

    async def _answer(self, request: PredictRequest) -> list[AnyAnswer]:
        parts = request.words or request.texts or [request.text or "", request.text_pair or ""]
        if sum(len(part) for part in parts) > _MAX_INLINE_CHARS:
            rows = await asyncio.to_thread(self._encode, request)
        else:
            rows = self._encode(request)
        outcomes = await asyncio.gather(
            *(self._lanes[row.lane].score(row.encoded.input_ids) for row in rows)
        )
        manifest, answers = self.served.bundle.manifest, []
        for place, row, outcome in zip(name_places(len(rows)), rows, outcomes, strict=True):
            if isinstance(outcome, InferenceError):
                raise InferenceError(outcome.problem, place=place)
            answers.append(
                build_answer(
                    row,
                    outcome,
                    task=manifest.task,
                    labels=manifest.labels,
                    with_scores=request.scores,
                )
            )
        return answers

    def _encode(self, request: PredictRequest) -> list[EncodedRow]:
        manifest, limits = self.served.bundle.manifest, self.served.limits
        task, pair = manifest.task, request.text_pair
        check_pairing(is_pair=pair is not None, takes_pairs=manifest.takes_pairs)
        if pair is not None:
            return [encode_pair(request.text or "", pair, encoder=self._encoder, limits=limits)]
        if request.words is not None:
            return [encode_words(request.words, encoder=self._encoder, task=task, limits=limits)]
        texts = request.texts if request.texts is not None else [request.text or ""]
        return encode_texts(texts, encoder=self._encoder, task=task, limits=limits)
