"""What goes over HTTP: the request, the answers, the error body.

Making an answer and writing it takes pydantic 3 microseconds (measured 2026-12-02), so the
same models check, write and describe.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator


class _Body(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    def to_json(self) -> bytes:
        """Return the body as it goes over the wire."""
        return self.__pydantic_serializer__.to_json(self)


class PredictRequest(_Body):
    """Exactly one of ``text``, ``texts`` and ``words``; a pair is ``text`` and ``text_pair``."""

    text: str | None = Field(default=None, examples=["A film to see twice."])
    """One text."""
    text_pair: str | None = None
    """Second text of a pair, beside ``text`` (models of pairs only, and always there)."""
    # Any, because an item of the wrong type must fail alone.
    texts: list[Annotated[Any, WithJsonSchema({"type": "string"})]] | None = Field(
        default=None, min_length=1
    )
    """Several texts, answered in the same order; each is answered or fails alone."""
    words: Annotated[list[str], Field(fail_fast=True)] | None = Field(default=None, min_length=1)
    """One text that is already split into words (token classification only)."""
    scores: bool = False
    """Also return the score of every label (not for token classification)."""
    top_k: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Also return so many labels with the highest scores (not for token classification)."""
    timings: bool = False
    """Also return how long each stage took."""

    @model_validator(mode="after")
    def _one_input(self) -> "PredictRequest":
        given = [name for name in ("text", "texts", "words") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"send exactly one of text, texts and words; this has {found}")
        if self.text_pair is not None and self.text is None:
            raise ValueError(f"text_pair goes with text; this has {given[0]}")
        return self


class Timings(_Body):
    """Where the time of an answer went, in milliseconds."""

    tokenise_ms: float
    """Cleaning and tokenising all texts of the request."""
    queue_ms: float
    """From arrival on the model's replica to the start of the model run."""
    session_ms: float
    """The model run that the text was part of."""
    total_ms: float
    """From arrival of the request to the making of this answer."""
    batch_rows: int
    """Texts in that model run."""


class Answer(_Body):
    """What every answer to a text says."""

    lane: Literal["short", "long"]
    """Queue that the text went through."""
    num_tokens: int
    """Tokens that the model saw, special tokens included."""
    is_truncated: bool
    """Whether the end of the text was cut off at the model's max_seq_len."""
    timings: Timings | None = None
    """Stage timings, if asked for."""


class LabelAnswer(_Body):
    """One label and its score."""

    label: str
    score: float
    """0 to 1: softmax of the logits, or for several labels per text the sigmoid of its own."""


class _ScoredAnswer(Answer):
    scores: dict[str, float] | None = None
    """Score of every label, if asked for."""
    top: list[LabelAnswer] | None = None
    """The ``top_k`` labels with the highest scores, highest first, if asked for."""


class SequenceAnswer(_ScoredAnswer):
    """Label of a whole text."""

    label: str
    score: float
    """Probability of the label, 0 to 1 (softmax of the logits)."""


class MultiLabelAnswer(_ScoredAnswer):
    """Labels of a whole text, any number of them; each is judged alone."""

    labels: list[LabelAnswer]
    """Every label with a score of 0.5 or more, highest score first; may be empty."""


class WordAnswer(_Body):
    """Label of one word."""

    word: str
    label: str | None
    """Null where the word was cut off or has no token."""
    score: float | None
    """Probability of the label, 0 to 1; null without a label."""
    start: int | None
    """First character of the word in ``text`` as sent (Unicode code points, from 0); null where
    words were sent."""
    end: int | None
    """One past its last character."""


class TokenAnswer(Answer):
    """Labels of the words of a text."""

    words: list[WordAnswer]


AnyAnswer = SequenceAnswer | MultiLabelAnswer | TokenAnswer


class ItemErrorDetail(_Body):
    """Why one of several texts has no answer."""

    code: str
    message: str
    field: str | None
    """Where in the request, such as ``texts[1]``."""


class ItemError(_Body):
    """Stands in ``answers`` where the text there has none."""

    error: ItemErrorDetail


class Origin(_Body):
    """Which request and which model an answer belongs to."""

    request_id: str
    version: str
    """Version of the bundle and its model file."""


class SequenceResponse(Origin, SequenceAnswer):
    """Answer to ``text`` (sequence classification)."""


class TokenResponse(Origin, TokenAnswer):
    """Answer to ``text`` or ``words`` (token classification)."""


class MultiLabelResponse(Origin, MultiLabelAnswer):
    """Answer to ``text`` (multi-label classification)."""


class TextsResponse(Origin):
    """Answers to ``texts``, in their order."""

    answers: list[AnyAnswer | ItemError]


AnyResponse = SequenceResponse | MultiLabelResponse | TokenResponse | TextsResponse


_LabelOrLabels = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            ]
        }
    ),
]


class FeedbackRequest(_Body):
    """What the right answer would have been."""

    request_id: str
    """Of the answer."""
    version: str
    """Of the answer."""
    # Any, because which of the two it must be depends on the version's task.
    predicted: _LabelOrLabels
    """Label of the answer; of a multi-label model the list of its labels, of a token model the
    list of its words' labels."""
    label: _LabelOrLabels
    """The right one, in the same form."""


class FeedbackAnswer(_Body):
    """The feedback is counted."""

    request_id: str
    is_right: bool
    """Whether the answer was right."""


class Alive(_Body):
    """The process can answer."""

    status: Literal["alive"] = "alive"


class Ready(_Body):
    """Both lanes are warm and serve this version."""

    version: str
    status: Literal["ready"] = "ready"


class ModelLimits(_Body):
    """What a request may carry."""

    max_seq_len: int
    """Tokens of one text; the rest is cut off, or the text refused."""
    refuses_too_long: bool
    """Whether texts over ``max_seq_len`` are refused instead of cut."""
    short_max_tokens: int
    """Texts up to this many tokens go to the short lane."""
    max_text_chars: int
    max_texts_per_request: int
    max_body_bytes: int
    request_timeout_s: float


class ModelInfo(_Body):
    """The served bundle."""

    version: str
    name: str
    task: str
    labels: list[str]
    takes_pairs: bool
    """Whether a request must be a pair, ``text`` and ``text_pair``."""
    limits: ModelLimits
    quality: dict[str, Any]
    """Figures of the export's checks."""
    provenance: dict[str, Any]
    """Hashes and versions that the bundle was made from."""


class ErrorDetail(_Body):
    """What went wrong."""

    code: str
    """Stable, for programs."""
    message: str
    """For people: what is wrong, where, and what to do."""
    field: str | None
    """The part of the request that it is about, if it is about one."""
    request_id: str


class ErrorBody(_Body):
    """Body of every answer that is not 200."""

    error: ErrorDetail
