"""The road of one request: admit, tokenise, choose lanes, wait, build answers; no HTTP."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.contract.errors import (
    DeadlineError,
    NotReadyError,
    OverloadedError,
    RequestError,
    ServiceError,
    TextlaneError,
)
from pipeline.contract.tokenization import TextEncoder
from serve_app.admission import Admission
from serve_app.answers import NO_DETAIL, AnswerDetail, build_answer
from serve_app.encoding import EncodedRow
from serve_app.lane_call import LaneAnswer, LaneRow, RowKey, draw_key
from serve_app.limits import LaneName
from serve_app.request_record import RequestRecord
from serve_app.request_rows import Encoded, check_request, encode_request, places_of, texts_of
from serve_app.schemas import AnyAnswer, PredictRequest, Timings
from serve_app.served import Served

Outcome = AnyAnswer | RequestError | ServiceError
"""What became of one text of a request."""
_HEALTH_TIMEOUT_S = 5.0
# Tokenising this many characters takes about a millisecond; more would hold up the loop.
_MAX_INLINE_CHARS = 8192
Scored = LaneAnswer | RequestError | ServiceError
"""What a lane made of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What became of a request: one of each for every text, in order."""

    rows: Sequence[Encoded]
    scored: Sequence[Scored]
    outcomes: list[Outcome]


class Lane(Protocol):
    """A queue in front of model replicas."""

    async def score(self, row: LaneRow) -> LaneAnswer:
        """Return what became of a row; cancelling this drops the row."""
        ...

    async def version(self) -> str:
        """Return the version that the lane serves."""
        ...


class PredictService:
    """Answers requests from the lanes, within limits; one for each ingress process."""

    def __init__(
        self,
        served: Served,
        *,
        encoder: TextEncoder,
        lanes: Mapping[LaneName, Lane],
        admission: Admission | None = None,
        logs_texts: bool = False,
    ) -> None:
        """Take a bundle, its tokenizer and the lanes that run its model.

        Args:
            served: the bundle and its limits.
            encoder: its tokenizer.
            lanes: what runs its model.
            admission: what is in hand, shared by all versions of a process; None: this one's.
            logs_texts: put the texts into the records of their requests.
        """
        self.served = served
        self.version = served.version
        """As answers carry it; a version is made from hashes, so it is kept."""
        self._encoder = encoder
        self._lanes = lanes
        self.logs_texts = logs_texts
        self._admission = admission or Admission(most_wait_s=served.limits.request_timeout_s)

    async def predict(self, request: PredictRequest, record: RequestRecord) -> Prediction:
        """Return an answer or error for each text of a request, in order.

        Args:
            request: what is asked.
            record: has the request's id and deadline; gets its figures.

        Raises:
            RequestError: (a subtype) nothing of the request can be answered as sent.
            OverloadedError: too many texts are in hand already, or the lane's queue is full.
            DeadlineError: no answer was there in time.
            NotReadyError: the lane cannot answer.
        """
        try:
            return await self._predict(request, record)
        except OverloadedError:
            record.retry_after_s = self._admission.refuse(record.num_texts)
            raise

    async def _predict(self, request: PredictRequest, record: RequestRecord) -> Prediction:
        check_request(request, self.served)
        texts = texts_of(request)
        record.num_texts = len(request.texts) if request.texts is not None else 1
        if self.logs_texts:
            record.texts = [str(text) for text in texts]
        with self._admission.admit(record.num_texts, most=self.served.limits.max_queued_requests):
            rows = await self._encode_timed(request, texts, record)
            scored = await self._score(rows, record)
        self._admission.note_answered(sum(isinstance(one, LaneAnswer) for one in scored))
        places = places_of(request)
        outcomes = [
            self._conclude(row, answer, place=place, request=request, record=record)
            for row, answer, place in zip(rows, scored, places, strict=True)
        ]
        _raise_if_none_got_through(outcomes)
        if request.texts is not None:
            record.num_failed = sum(isinstance(outcome, TextlaneError) for outcome in outcomes)
            record.num_let_down = sum(map(_is_let_down, outcomes))
        return Prediction(rows=rows, scored=scored, outcomes=outcomes)

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
            if version != self.version:
                raise NotReadyError(f"the {name} lane serves another version", value=version)

    async def _encode_timed(
        self, request: PredictRequest, texts: Sequence[object], record: RequestRecord
    ) -> Sequence[Encoded]:
        started = time.perf_counter()
        if sum(len(text) for text in texts if isinstance(text, str)) > _MAX_INLINE_CHARS:
            rows = await asyncio.to_thread(encode_request, request, self._encoder, self.served)
        else:
            rows = encode_request(request, self._encoder, self.served)
        record.tokenise_ms = (time.perf_counter() - started) * 1000.0
        good = [row for row in rows if isinstance(row, EncodedRow)]
        lanes = {row.lane for row in good}
        record.lane = "both" if len(lanes) > 1 else "".join(lanes)
        record.num_tokens = sum(row.num_tokens for row in good)
        record.num_truncated = sum(row.is_truncated for row in good)
        return rows

    async def _score(self, rows: Sequence[Encoded], record: RequestRecord) -> list[Scored]:
        key = draw_key()
        if len(rows) == 1:
            # The common case, without a task of its own.
            try:
                async with asyncio.timeout(record.remaining_s()):
                    return [await self._score_row(rows[0], record, key)]
            except TimeoutError:
                return [_late(record)]
        tasks = [asyncio.ensure_future(self._score_row(row, record, key)) for row in rows]
        try:
            done, _ = await asyncio.wait(tasks, timeout=max(0.0, record.remaining_s()))
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            # A lane must have seen that nobody waits before the request is gone.
            await asyncio.gather(*late, return_exceptions=True)
        return [task.result() if task in done else _late(record) for task in tasks]

    async def _score_row(self, row: Encoded, record: RequestRecord, key: RowKey) -> Scored:
        if not isinstance(row, EncodedRow):
            return row
        asked = LaneRow(
            input_ids=row.input_ids,
            request_id=record.request_id,
            key=key,
            timeout_s=record.remaining_s(),
        )
        try:
            return await self._lanes[row.lane].score(asked)
        except ServiceError as error:
            return error

    def _conclude(
        self,
        row: Encoded,
        scored: Scored,
        *,
        place: str,
        request: PredictRequest,
        record: RequestRecord,
    ) -> Outcome:
        if isinstance(scored, LaneAnswer):
            record.add_lane_answer(scored)
            outcome = scored.outcome
        else:
            outcome = scored
        if isinstance(outcome, RequestError):
            return outcome
        if isinstance(outcome, ServiceError):
            # The lane does not know where in the request the text stood.
            return type(outcome)(outcome.problem, place=place, remedy=outcome.remedy)
        if isinstance(outcome, TextlaneError):
            raise outcome
        assert isinstance(row, EncodedRow)
        assert isinstance(scored, LaneAnswer)
        manifest = self.served.bundle.manifest
        return build_answer(
            row,
            outcome,
            task=manifest.task,
            labels=manifest.labels,
            detail=_detail(request, scored, record),
        )


def _late(record: RequestRecord) -> DeadlineError:
    return DeadlineError(
        f"no answer within {record.timeout_s:g} s",
        remedy="Send it again later, or send fewer texts at once.",
    )


def _detail(request: PredictRequest, scored: LaneAnswer, record: RequestRecord) -> AnswerDetail:
    if not (request.scores or request.top_k or request.timings):
        return NO_DETAIL
    timings = None
    if request.timings:
        timings = Timings(
            tokenise_ms=round(record.tokenise_ms or 0.0, 3),
            queue_ms=round(scored.queue_ms, 3),
            session_ms=round(scored.session_ms, 3),
            total_ms=round(record.elapsed_s() * 1000.0, 3),
            batch_rows=scored.batch_rows,
        )
    return AnswerDetail(with_scores=request.scores, top_k=request.top_k, timings=timings)


def _raise_if_none_got_through(outcomes: Sequence[Outcome]) -> None:
    """Let a request fail as a whole where the service let down every text the same way.

    Then the status tells a client to send all of it again, as it does for a single text.
    """
    kinds = {type(outcome) for outcome in outcomes}
    first = outcomes[0]
    if isinstance(first, OverloadedError | NotReadyError | DeadlineError) and len(kinds) == 1:
        raise type(first)(first.problem, remedy=first.remedy)


def _is_let_down(outcome: Outcome) -> bool:
    # A queue that is full says nothing about the version behind it.
    return isinstance(outcome, ServiceError) and not isinstance(outcome, OverloadedError)
