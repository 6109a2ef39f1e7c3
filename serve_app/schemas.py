"""What goes over HTTP: the request, the answers, the error body."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Body(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )


class PredictRequest(_Body):
    """Exactly one of ``text``, ``texts`` and ``words``; a pair is ``text`` and ``text_pair``."""

    text: str | None = Field(default=None, examples=["A film to see twice."])
    """One text."""
    text_pair: str | None = None
    """Second text of a pair, beside ``text`` (models of pairs only, and always there)."""
    texts: list[str] | None = Field(default=None, min_length=1)
    """Several texts, answered in the same order."""
    words: list[str] | None = Field(default=None, min_length=1)
    """One text that is already split into words (token classification only)."""
    scores: bool = False
    """Also return the score of every label (not for token classification)."""

    @model_validator(mode="after")
    def _one_input(self) -> "PredictRequest":
        given = [name for name in ("text", "texts", "words") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"send exactly one of text, texts and words; this has {found}")
        if self.text_pair is not None and self.text is None:
            raise ValueError(f"text_pair goes with text; this has {given[0]}")
        return self


class Answer(_Body):
    """What every answer to a text says."""

    lane: Literal["short", "long"]
    """Queue that the text went through."""
    num_tokens: int
    """Tokens that the model saw, special tokens included."""
    is_truncated: bool
    """Whether the end of the text was cut off at the model's max_seq_len."""


class SequenceAnswer(Answer):
    """Label of a whole text."""

    label: str
    score: float
    """Probability of the label, 0 to 1 (softmax of the logits)."""
    scores: dict[str, float] | None = None
    """Probability of every label, if asked for."""


class LabelAnswer(_Body):
    """One label of a text that may have several."""

    label: str
    score: float
    """Score of the label, 0 to 1 (sigmoid of its logit)."""


class MultiLabelAnswer(Answer):
    """Labels of a whole text, any number of them."""

    labels: list[LabelAnswer]
    """Every label with a score of 0.5 or more, highest score first; may be empty."""
    scores: dict[str, float] | None = None
    """Score of every label, if asked for; each is judged alone, so they have no sum."""


class WordAnswer(_Body):
    """Label of one word."""

    word: str
    label: str | None
    """Null where the word was cut off or has no token."""
    score: float | None
    """Probability of the label, 0 to 1; null without a label."""


class TokenAnswer(Answer):
    """Labels of the words of a text."""

    words: list[WordAnswer]


AnyAnswer = SequenceAnswer | MultiLabelAnswer | TokenAnswer


class Origin(_Body):
    """Which request and which model an answer belongs to."""

    request_id: str
    model: str
    """Version of the bundle and its model file."""


class SequenceResponse(Origin, SequenceAnswer):
    """Answer to ``text`` (sequence classification)."""


class TokenResponse(Origin, TokenAnswer):
    """Answer to ``text`` or ``words`` (token classification)."""


class MultiLabelResponse(Origin, MultiLabelAnswer):
    """Answer to ``text`` (multi-label classification)."""


class TextsResponse(Origin):
    """Answers to ``texts``, in their order."""

    answers: list[AnyAnswer]


class Health(_Body):
    """The service can answer."""

    status: Literal["ok"]
    model: str


class ModelLimits(_Body):
    """What a request may carry."""

    max_seq_len: int
    """Tokens of one text; the rest is cut off."""
    short_max_tokens: int
    """Texts up to this many tokens go to the short lane."""
    max_text_chars: int
    max_texts_per_request: int
    max_body_bytes: int
    request_timeout_s: float


class ModelInfo(_Body):
    """The served bundle."""

    model: str
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

    type: str
    message: str
    request_id: str


class ErrorBody(_Body):
    """Body of every answer that is not 200."""

    error: ErrorDetail
