"""Texts that the other version answers too: after the user's answer, in quiet moments only."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass

from pipeline.contract.errors import InferenceError, RequestError, ServiceError
from pipeline.contract.tokenization import TextEncoder
from serve_app.admission import Admission
from serve_app.encoding import EncodedRow
from serve_app.lane_call import LaneAnswer, LaneRow, RowKey, draw_key
from serve_app.limits import LaneName
from serve_app.release.report import Comparison
from serve_app.release.traffic import TrafficLog
from serve_app.request_rows import Encoded, check_request, encode_request
from serve_app.schemas import PredictRequest
from serve_app.served import Served
from serve_app.service import Lane, Prediction, Scored

MOST_IN_HAND = 64
"""Texts of shadows that one ingress waits for; as many as one call to a lane carries."""
PATIENCE_S = 5.0
"""Seconds that a shadow waits for its quiet moment; chosen, bursts of users are shorter."""


@dataclass(frozen=True, kw_only=True)
class ShadowTarget:
    """A version as shadows reach it: with lanes that wait behind users'."""

    served: Served
    encoder: TextEncoder
    lanes: Mapping[LaneName, Lane]

    async def answer(
        self, request: PredictRequest, *, request_id: str
    ) -> tuple[Sequence[Encoded], list[Scored]]:
        """Return rows and what became of them, for each text of a request.

        Raises:
            RequestError: the version cannot answer such a request at all.
        """
        check_request(request, self.served)
        rows = await asyncio.to_thread(encode_request, request, self.encoder, self.served)
        key = draw_key()
        return rows, await asyncio.gather(
            *(self._score(row, request_id=request_id, key=key) for row in rows)
        )

    async def _score(self, row: Encoded, *, request_id: str, key: RowKey) -> Scored:
        if not isinstance(row, EncodedRow):
            return row
        asked = LaneRow(
            input_ids=row.input_ids,
            request_id=request_id,
            key=key,
            timeout_s=PATIENCE_S,
            is_shadow=True,
        )
        try:
            return await self.lanes[row.lane].score(asked)
        except ServiceError as error:
            return error


@dataclass(frozen=True, kw_only=True)
class AnsweredText:
    """One text as a version answered it."""

    row: EncodedRow
    answer: LaneAnswer
    """Its outcome is logits."""


@dataclass(frozen=True, kw_only=True)
class ShadowPair:
    """One text that the user's version answered, and what the other made of it."""

    request_id: str
    place: int
    """Of the text in its request."""
    own: AnsweredText
    other: AnsweredText | None
    """None: it has no answer, by its own fault."""


class ShadowRunner:
    """Runs shadows within a budget; used from one event loop."""

    def __init__(
        self,
        log: TrafficLog,
        *,
        admission: Admission,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing spent.

        Args:
            log: is told of texts that could not be compared.
            admission: users' texts in hand.
            clock: monotonic seconds.
        """
        self._log = log
        self._admission = admission
        self._clock = clock
        self._budget, self._filled_s = 0.0, clock()
        self._num_in_hand = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def offer(
        self,
        request: PredictRequest,
        prediction: Prediction,
        *,
        request_id: str,
        target: ShadowTarget,
        texts_per_s: float,
        compare: Callable[[ShadowPair], Comparison | None],
    ) -> None:
        """Have a target answer too, if there is room and budget; comparisons go to the log.

        Args:
            request: what was asked.
            prediction: what its user got.
            request_id: its id.
            target: the other version.
            texts_per_s: the budget; a list may overdraw it, and others wait for that.
            compare: makes of a pair what the log keeps; None where there is nothing to say.
        """
        own = _answered(prediction.rows, prediction.scored)
        num_texts = len(prediction.rows)
        if not own:
            return
        self._refill(texts_per_s)
        most = target.served.limits.max_queued_requests
        is_busy = 2 * self._admission.num_texts > most
        if is_busy or self._budget <= 0.0 or self._num_in_hand + num_texts > MOST_IN_HAND:
            self._log.drop_comparisons(len(own))
            return
        self._budget -= num_texts
        self._num_in_hand += num_texts
        # In no request's context: Ray Serve cancels what it finds made in one that has ended.
        task = asyncio.get_running_loop().create_task(
            self._run(request, own, request_id=request_id, target=target, compare=compare),
            context=Context(),
        )
        self._tasks.add(task)

        def forget(done: "asyncio.Task[None]") -> None:
            self._tasks.discard(done)
            self._num_in_hand -= num_texts

        task.add_done_callback(forget)

    def _refill(self, texts_per_s: float) -> None:
        now = self._clock()
        # At most a second's worth is saved: a shadow is no reason for a burst.
        self._budget = min(
            max(texts_per_s, 1.0) if texts_per_s else 0.0,
            self._budget + (now - self._filled_s) * texts_per_s,
        )
        self._filled_s = now

    async def _run(
        self,
        request: PredictRequest,
        own: Mapping[int, AnsweredText],
        *,
        request_id: str,
        target: ShadowTarget,
        compare: Callable[[ShadowPair], Comparison | None],
    ) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                rows, scored = await target.answer(request, request_id=request_id)
        except TimeoutError:
            self._log.drop_comparisons(len(own))
            return
        except RequestError as error:
            # Its user got an answer, of the other version there is none: that is a fault.
            rows, scored = [], [error] * (max(own) + 1)
        answered = _answered(rows, scored)
        for place, of_user in own.items():
            other = answered.get(place)
            if other is None and not _is_own_fault(scored[place]):
                self._log.drop_comparisons(1)
                continue
            pair = ShadowPair(request_id=request_id, place=place, own=of_user, other=other)
            comparison = compare(pair)
            if comparison is not None:
                self._log.add_comparison(comparison)


def _answered(rows: Sequence[Encoded], scored: Sequence[Scored]) -> dict[int, AnsweredText]:
    return {
        place: AnsweredText(row=row, answer=answer)
        for place, (row, answer) in enumerate(zip(rows, scored, strict=False))
        if isinstance(row, EncodedRow)
        and isinstance(answer, LaneAnswer)
        and not isinstance(answer.outcome, Exception)
    }


def _is_own_fault(scored: Scored) -> bool:
    """Whether a version failed a text, and was not only too busy for a shadow."""
    error = scored.outcome if isinstance(scored, LaneAnswer) else scored
    return isinstance(error, InferenceError | RequestError)
