"""`POST /v1/feedback`: what a user says the right label is, judged against the answer they got."""

from collections.abc import Sequence
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from pipeline.contract.errors import InvalidRequestError
from serve_app.http_body import parse_body, read_body
from serve_app.http_frame import send_json
from serve_app.release.report import Feedback
from serve_app.request_headers import MAX_REQUEST_ID_CHARS, is_request_id
from serve_app.schemas import FeedbackAnswer, FeedbackRequest

EXAMPLE = (
    'Send {"request_id": "…", "version": "…", "predicted": "negative", "label": "positive"}, the '
    "first three as the answer had them."
)
_METHOD = "POST"
_MAX_SHOWN_CHARS = 50
_TOKEN_TASK = "token_classification"
_MULTI_LABEL_TASK = "multi_label_classification"


class AnsweringVersion(Protocol):
    """What feedback must know of a version; a bundle's manifest has it."""

    @property
    def task(self) -> str:
        """Such as ``sequence_classification``."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """All labels that it knows."""
        ...


class FeedbackDesk(Protocol):
    """Takes feedback; one for each ingress process."""

    def find_version(self, version: str) -> AnsweringVersion | None:
        """Return a version that answers now, None for any other."""
        ...

    def add_feedback(self, feedback: Feedback) -> None:
        """Count it."""
        ...


class FeedbackDoor:
    """The ASGI application of one path; it keeps nothing, the answer that a client got does."""

    def __init__(self, desk: FeedbackDesk, *, max_body_bytes: int) -> None:
        """Take what counts the feedback."""
        self._desk = desk
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            InvalidRequestError: it is not as documented, or about a version or label that is
                not known here.
            BodyTooLargeError: the body is over the limit.
            HTTPException: the method is not POST.
        """
        if scope["method"] != _METHOD:
            raise HTTPException(405, headers={"Allow": _METHOD})
        body = await read_body(
            scope, receive, max_bytes=self._max_body_bytes, remedy="Feedback is short."
        )
        request = parse_body(body, FeedbackRequest, example=EXAMPLE)
        feedback = judge_feedback(request, self._desk)
        self._desk.add_feedback(feedback)
        answer = FeedbackAnswer(request_id=request.request_id, is_right=feedback.is_right)
        await send_json(answer.to_json(), send)


def judge_feedback(request: FeedbackRequest, desk: FeedbackDesk) -> Feedback:
    """Return whether the answer was right: the labels are equal, of a multi-label model as sets.

    Raises:
        InvalidRequestError: the id, the version or a label cannot be one of ours.
    """
    if not is_request_id(request.request_id):
        raise InvalidRequestError(
            f"must be 1 to {MAX_REQUEST_ID_CHARS} printable ASCII characters",
            place="request_id",
            remedy="Send the one in the answer.",
        )
    version = desk.find_version(request.version)
    if version is None:
        raise InvalidRequestError(
            "no such version answers now; feedback counts for those that do",
            place="version",
            value=request.version[:_MAX_SHOWN_CHARS],
            remedy="Send the one in the answer; drop feedback on versions that are gone.",
        )
    predicted = _labels(request.predicted, version, place="predicted")
    right = _labels(request.label, version, place="label")
    if version.task == _TOKEN_TASK and len(predicted) != len(right):
        raise InvalidRequestError(
            f"{len(right)} labels are not the {len(predicted)} of predicted",
            place="label",
            remedy="Send one for each word.",
        )
    if version.task == _MULTI_LABEL_TASK:
        is_right = set(predicted) == set(right)
    else:
        is_right = predicted == right
    return Feedback(version=request.version, is_right=is_right, request_id=request.request_id)


def _labels(given: object, version: AnsweringVersion, *, place: str) -> list[Any]:
    takes_list = version.task in (_TOKEN_TASK, _MULTI_LABEL_TASK)
    if isinstance(given, list) != takes_list:
        what = "a list of labels, as the model gives several" if takes_list else "one label"
        raise InvalidRequestError(f"must be {what}", place=place, remedy=EXAMPLE)
    labels = list(given) if isinstance(given, list) else [given]
    known = set(version.labels)
    for label in labels:
        # A word that was cut off has none.
        is_none_word = label is None and version.task == _TOKEN_TASK
        if not is_none_word and (not isinstance(label, str) or label not in known):
            raise InvalidRequestError(
                "is no label of this version",
                place=place,
                value=label[:_MAX_SHOWN_CHARS] if isinstance(label, str) else label,
                remedy="GET /v1/model lists them.",
            )
    return labels
