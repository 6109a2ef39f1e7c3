from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PredictRequest(_message.Message):
    __slots__ = ("text", "text_pair", "texts", "words", "scores", "top_k", "timings")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_PAIR_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    text: str
    text_pair: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    words: _containers.RepeatedScalarFieldContainer[str]
    scores: bool
    top_k: int
    timings: bool
    def __init__(self, text: _Optional[str] = ..., text_pair: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., words: _Optional[_Iterable[str]] = ..., scores: _Optional[bool] = ..., top_k: _Optional[int] = ..., timings: _Optional[bool] = ...) -> None: ...

class PredictResponse(_message.Message):
    __slots__ = ("request_id", "version", "answers")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    version: str
    answers: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, request_id: _Optional[str] = ..., version: _Optional[str] = ..., answers: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("answer", "error")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    answer: Answer
    error: ItemError
    def __init__(self, answer: _Optional[_Union[Answer, _Mapping]] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("lane", "num_tokens", "is_truncated", "timings", "label", "score", "labels", "words", "scores", "top")
    class ScoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    LANE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    lane: str
    num_tokens: int
    is_truncated: bool
    timings: Timings
    label: str
    score: float
    labels: _containers.RepeatedCompositeFieldContainer[LabelScore]
    words: _containers.RepeatedCompositeFieldContainer[Word]
    scores: _containers.ScalarMap[str, float]
    top: _containers.RepeatedCompositeFieldContainer[LabelScore]
    def __init__(self, lane: _Optional[str] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., label: _Optional[str] = ..., score: _Optional[float] = ..., labels: _Optional[_Iterable[_Union[LabelScore, _Mapping]]] = ..., words: _Optional[_Iterable[_Union[Word, _Mapping]]] = ..., scores: _Optional[_Mapping[str, float]] = ..., top: _Optional[_Iterable[_Union[LabelScore, _Mapping]]] = ...) -> None: ...

class LabelScore(_message.Message):
    __slots__ = ("label", "score")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    label: str
    score: float
    def __init__(self, label: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class Word(_message.Message):
    __slots__ = ("word", "label", "score", "start", "end")
    WORD_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    word: str
    label: str
    score: float
    start: int
    end: int
    def __init__(self, word: _Optional[str] = ..., label: _Optional[str] = ..., score: _Optional[float] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("tokenise_ms", "queue_ms", "session_ms", "total_ms", "batch_rows")
    TOKENISE_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    tokenise_ms: float
    queue_ms: float
    session_ms: float
    total_ms: float
    batch_rows: int
    def __init__(self, tokenise_ms: _Optional[float] = ..., queue_ms: _Optional[float] = ..., session_ms: _Optional[float] = ..., total_ms: _Optional[float] = ..., batch_rows: _Optional[int] = ...) -> None: ...

class ItemError(_message.Message):
    __slots__ = ("code", "message", "field")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    field: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ...) -> None: ...
