"""Between the messages of gRPC and what the service takes and gives; the fields are named alike."""

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from pipeline.contract.errors import InvalidRequestError, TextlaneError
from serve_app.error_answers import describe_item_error
from serve_app.request_fields import build_request, too_large
from serve_app.request_record import RequestRecord
from serve_app.rpc import predict_pb2
from serve_app.schemas import PredictRequest
from serve_app.service import Outcome

_EXAMPLE = 'Send PredictRequest(text="..."); serve_app/rpc/predict.proto has the messages.'


def parse_message(message: bytes, *, max_bytes: int) -> PredictRequest:
    """Return the request in a serialised ``PredictRequest``.

    Raises:
        BodyTooLargeError: it is longer than ``max_bytes``.
        InvalidRequestError: not such a message, not Unicode, or fields do not go together.
    """
    if len(message) > max_bytes:
        raise too_large(max_bytes)
    try:
        asked = predict_pb2.PredictRequest.FromString(message)
    except DecodeError as error:
        raise InvalidRequestError(
            f"not a textlane.v1.PredictRequest: {error}", place="body", remedy=_EXAMPLE
        ) from None
    # A list without items is not told from no list; what was not set is not there.
    fields = {
        field.name: list(value) if field.is_repeated else value
        for field, value in asked.ListFields()
    }
    return build_request(fields, PredictRequest, remedy=_EXAMPLE)


def build_response(
    outcomes: Sequence[Outcome], record: RequestRecord, *, is_list: bool
) -> predict_pb2.PredictResponse:
    """Return the answer to a request.

    Args:
        outcomes: what became of each text.
        record: of the request.
        is_list: whether a text without an answer is one of several.

    Raises:
        TextlaneError: the only text has no answer.
    """
    if not is_list and isinstance(outcomes[0], TextlaneError):
        raise outcomes[0]
    return predict_pb2.PredictResponse(
        request_id=record.request_id,
        version=record.version,
        answers=[_build_outcome(outcome) for outcome in outcomes],
    )


def _build_outcome(outcome: Outcome) -> predict_pb2.Outcome:
    if isinstance(outcome, TextlaneError):
        detail = describe_item_error(outcome).error
        return predict_pb2.Outcome(error=predict_pb2.ItemError(**detail.model_dump()))
    fields = outcome.model_dump(exclude_none=True)
    return predict_pb2.Outcome(answer=predict_pb2.Answer(**fields))
