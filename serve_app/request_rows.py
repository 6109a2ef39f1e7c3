"""A request's texts as rows for a lane, and what a bundle cannot answer at all."""

from collections.abc import Sequence

from pipeline.contract.errors import InvalidRequestError, RequestError, TooManyTextsError
from pipeline.contract.tokenization import TextEncoder
from serve_app.encoding import (
    TOKEN_TASK,
    EncodedRow,
    check_pairing,
    encode_pair,
    encode_texts,
    encode_words,
    name_places,
)
from serve_app.schemas import PredictRequest
from serve_app.served import Served

Encoded = EncodedRow | RequestError
"""A text ready for a lane, or why it cannot be."""


def check_request(request: PredictRequest, served: Served) -> None:
    """Check that a bundle can answer what a request asks.

    Raises:
        InvalidRequestError: it is for a model of another kind.
        TooManyTextsError: it has more texts than one request may carry.
    """
    manifest, limits = served.bundle.manifest, served.limits
    check_pairing(is_pair=request.text_pair is not None, takes_pairs=manifest.takes_pairs)
    num_texts = len(request.texts or ())
    if num_texts > limits.max_texts_per_request:
        raise TooManyTextsError(
            f"{num_texts} texts are over the limit of {limits.max_texts_per_request}",
            place="texts",
            remedy="Send them in several requests.",
        )
    for name in ("scores", "top_k"):
        if manifest.task == TOKEN_TASK and getattr(request, name):
            raise InvalidRequestError(
                "the model labels words; each has one label and its score",
                place=name,
                remedy=f"Leave {name} out.",
            )


def encode_request(
    request: PredictRequest, encoder: TextEncoder, served: Served
) -> Sequence[Encoded]:
    """Return a row or error for each text of a request, in order.

    Raises:
        RequestError: (a subtype) a pair or a text that came as words cannot be a row.
    """
    limits, task = served.limits, served.bundle.manifest.task
    if request.text_pair is not None:
        return [encode_pair(request.text or "", request.text_pair, encoder=encoder, limits=limits)]
    if request.words is not None:
        return [encode_words(request.words, encoder=encoder, task=task, limits=limits)]
    texts = request.texts if request.texts is not None else [request.text]
    return encode_texts(texts, encoder=encoder, task=task, limits=limits, places=places_of(request))


def texts_of(request: PredictRequest) -> Sequence[object]:
    """Return what a request says, as it came; both texts of a pair, the words of a text."""
    if request.text is not None:
        pair = request.text_pair
        return [request.text] if pair is None else [request.text, pair]
    return request.words or request.texts or []


def places_of(request: PredictRequest) -> list[str]:
    """Return what errors call each of the texts."""
    if request.texts is not None:
        return name_places(len(request.texts))
    return ["words" if request.words is not None else "text"]
