"""Every error type that textlane raises on purpose.

TextlaneError
├── ConfigError            a setting is unknown, of the wrong type or impossible
├── DataError              an input file or row cannot be used
│   └── BadRowsError       more rows were rejected than the job allows
├── FolderError            a shards, checkpoint or bundle folder cannot be used
│   ├── MissingFileError   a file that the manifest names is not there
│   ├── AlteredFileError   a file's sha256 is not the one in the manifest
│   └── SchemaVersionError the folder was written by a newer (or unknown) schema
├── WeightsError           a model's tensors are missing, extra, misshapen or not finite
├── TrainingError          training cannot start or go on
│   └── NotFiniteError     a loss or gradient is NaN or infinite
├── ExportError            an exported graph failed one of its checks
├── CommandError           a command of ours that was started as a process failed
├── RequestError           a request cannot be answered as sent
│   ├── UnauthorizedError     no API key, or one that is not served
│   ├── InvalidRequestError   body is not the documented JSON
│   ├── EmptyTextError        nothing is left of the text after cleaning
│   ├── TextTooLongError      the text is over the limit of characters
│   ├── TooManyTokensError    the text is over max_seq_len, and such texts are refused
│   ├── TooManyTextsError     the list has more texts than one request may carry
│   ├── BodyTooLargeError     the body is over the limit of bytes
│   └── ReleaseConflictError  the release is not in a state in which this can be done
└── ServiceError           the request was good, the service could not answer
    ├── OverloadedError       the queue is full
    ├── DeadlineError         the answer took longer than the time allowed
    ├── NotReadyError         the service has not loaded its bundle
    └── InferenceError        the model run failed
"""

from typing import Any

_UNSET = object()


class TextlaneError(Exception):
    """Says what is wrong, where, with which value, and what to do about it.

    Survives ``pickle``, so it can cross from a Ray actor to its caller.
    """

    def __init__(
        self,
        problem: str,
        *,
        place: str | None = None,
        value: Any = _UNSET,
        remedy: str | None = None,
    ) -> None:
        """Keep the four parts apart and join them for people.

        Args:
            problem: what is wrong, without a full stop.
            place: file, row, field or request where it is wrong.
            value: the offending value; shortened to 200 characters.
            remedy: one sentence that says what to do.
        """
        self.problem = problem
        self.place = place
        self.value = None if value is _UNSET else _short_repr(value)
        self.remedy = remedy
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        problem = self.problem
        if (self.value is not None or self.remedy) and not problem.endswith("..."):
            # What other libraries say, and a problem quotes, may end with a full stop.
            problem = problem.rstrip().removesuffix(".")
        text = f"{self.place}: {problem}" if self.place else problem
        if self.value is not None:
            text += f" (got {self.value})"
        return f"{text}. {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the parts; the default would pass the sentence as the problem."""
        return _rebuild, (type(self), self.problem, self.place, self.value, self.remedy)


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _rebuild(
    kind: type[TextlaneError],
    problem: str,
    place: str | None,
    value: str | None,
    remedy: str | None,
) -> TextlaneError:
    error = kind(problem, place=place, remedy=remedy)
    error.value = value
    error.args = (error._sentence(),)
    return error


class ConfigError(TextlaneError, ValueError):
    """A setting is unknown, of the wrong type or impossible."""


class DataError(TextlaneError, ValueError):
    """An input file or row cannot be used."""


class BadRowsError(DataError):
    """More rows were rejected than the job allows."""


class FolderError(TextlaneError, ValueError):
    """A shards, checkpoint or bundle folder cannot be used."""


class MissingFileError(FolderError):
    """A file that the manifest names, or the manifest itself, is not there."""


class AlteredFileError(FolderError):
    """A file's sha256 is not the one in the manifest."""


class SchemaVersionError(FolderError):
    """The folder was written by a newer or unknown schema."""


class WeightsError(TextlaneError, ValueError):
    """A model's tensors are missing, extra, misshapen or not finite."""


class TrainingError(TextlaneError, RuntimeError):
    """Training cannot start or go on."""


class NotFiniteError(TrainingError):
    """A loss or gradient is NaN or infinite."""


class ExportError(TextlaneError, RuntimeError):
    """An exported graph failed one of its checks."""


class CommandError(TextlaneError, RuntimeError):
    """A command of ours that was started as a process failed."""


class RequestError(TextlaneError, ValueError):
    """A request cannot be answered as sent."""


class UnauthorizedError(RequestError):
    """There is no API key, or one that is not served."""


class InvalidRequestError(RequestError):
    """The body is not the documented JSON."""


class EmptyTextError(RequestError):
    """Nothing is left of the text after cleaning."""


class TextTooLongError(RequestError):
    """The text is over the limit of characters."""


class TooManyTokensError(RequestError):
    """The text is over max_seq_len, and such texts are refused."""


class TooManyTextsError(RequestError):
    """The list has more texts than one request may carry."""


class BodyTooLargeError(RequestError):
    """The body is over the limit of bytes."""


class ReleaseConflictError(RequestError):
    """The release is not in a state in which this can be done."""


class ServiceError(TextlaneError, RuntimeError):
    """The request was good; the service could not answer it."""


class OverloadedError(ServiceError):
    """The queue is full."""


class DeadlineError(ServiceError):
    """The answer took longer than the time allowed."""


class NotReadyError(ServiceError):
    """The service has not loaded its bundle."""


class InferenceError(ServiceError):
    """The model run failed."""


def error_types() -> list[type[TextlaneError]]:
    """Return every type of the tree, root first, for tables and tests."""
    found: list[type[TextlaneError]] = []
    waiting: list[type[TextlaneError]] = [TextlaneError]
    while waiting:
        kind = waiting.pop(0)
        found.append(kind)
        waiting.extend(kind.__subclasses__())
    return found
