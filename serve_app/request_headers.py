"""What a request says beside its body, over HTTP or gRPC: its id, its deadline, its key."""

import hashlib
import hmac
import uuid
from collections.abc import Sequence

from pipeline.contract.errors import InvalidRequestError, UnauthorizedError
from serve_app.request_record import RequestRecord

REQUEST_ID_HEADER = "X-Request-ID"
DEADLINE_HEADER = "X-Deadline-Ms"
API_KEY_HEADER = "X-API-Key"
RELEASE_KEY_HEADER = "X-Release-Key"
MAX_REQUEST_ID_CHARS = 128
# Nobody waits for a day; longer numbers would only be there to be converted.
_MAX_DEADLINE_DIGITS = 8


class ApiKeys:
    """The keys of which one must be sent; none: all may ask."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Take the keys; only their digests are kept."""
        self._digests = [_digest(key.encode()) for key in keys]

    def check(self, key: bytes | None, authorization: bytes | None) -> None:
        """Let a request pass that has a key.

        Args:
            key: what stands under ``X-API-Key``.
            authorization: what stands under ``Authorization``.

        Raises:
            UnauthorizedError: there is no key, or one that is not served.
        """
        if not self._digests:
            return
        bearer = authorization or b""
        given = key or bearer[7:] * (bearer[:7].lower() == b"bearer ")
        # Digests have one length, and every key is compared: the time tells nothing.
        digest = _digest(given.strip())
        if not sum(hmac.compare_digest(digest, known) for known in self._digests):
            raise UnauthorizedError(
                "this is not a key that is served here" if given else "there is no API key",
                place=API_KEY_HEADER,
                remedy=f"Send yours as {API_KEY_HEADER}, or as Authorization: Bearer KEY.",
            )


def is_request_id(text: str) -> bool:
    """Return whether a text may be used as a request id, in headers and logs."""
    return 0 < len(text) <= MAX_REQUEST_ID_CHARS and text.isascii() and text.isprintable()


def new_request_id() -> str:
    """Return an id for a request that came without one."""
    return uuid.uuid4().hex


def read_request_id(
    given: str | None, record: RequestRecord, *, place: str = REQUEST_ID_HEADER
) -> str:
    """Return the id of a request, which is made where none was given.

    Args:
        given: as the client sent it.
        record: gets an id of ours where the given one cannot be used.
        place: what errors call it.

    Raises:
        InvalidRequestError: it is empty, too long or not plain.
    """
    if given is None:
        return new_request_id()
    if not is_request_id(given):
        record.request_id = new_request_id()
        raise InvalidRequestError(
            f"must be 1 to {MAX_REQUEST_ID_CHARS} printable ASCII characters",
            place=place,
            remedy="Send a shorter, plain one, or none: then one is made.",
        )
    return given


def read_release_key(given: bytes | None) -> str | None:
    """Return what the split between two versions is by; None where the client does not say.

    Raises:
        InvalidRequestError: it is empty, too long or not plain.
    """
    if given is None:
        return None
    text = given.decode("latin-1")
    if not is_request_id(text):
        raise InvalidRequestError(
            f"must be 1 to {MAX_REQUEST_ID_CHARS} printable ASCII characters",
            place=RELEASE_KEY_HEADER,
            remedy="Send a stable name of your client, such as a hash of its user's id, or none.",
        )
    return text


def read_deadline_s(given: bytes | None, record: RequestRecord) -> float:
    """Return the seconds that a request may take.

    Args:
        given: the client's milliseconds.
        record: has the time that holds where the client says nothing.

    Raises:
        InvalidRequestError: it is no whole number over 0.
    """
    if given is None:
        return record.timeout_s
    if not given.isdigit() or len(given) > _MAX_DEADLINE_DIGITS or int(given) == 0:
        raise InvalidRequestError(
            f"must be a whole number of milliseconds, 1 to {10**_MAX_DEADLINE_DIGITS - 1}",
            place=DEADLINE_HEADER,
            value=given[:20].decode("latin-1"),
            remedy="Send the time that you will wait, or leave the header out.",
        )
    return int(given) / 1000.0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
