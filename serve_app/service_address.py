"""URLs and keys of services as people type them: checked before anything is sent."""

from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from pipeline.contract.errors import ConfigError

_MAX_URL_CHARS = 2000
_MAX_KEY_CHARS = 1000


def split_url(url: str, *, example: str, key_option: str) -> tuple[SplitResult, int | None]:
    """Return the parts of a URL and its port, if it has one.

    Args:
        url: as typed.
        example: for remedies, a good one.
        key_option: what takes the key that may not stand in a URL.

    Raises:
        ConfigError: it cannot be used.
    """
    remedy = f"Write it like {example}."
    if not url.isascii() or not url.isprintable() or " " in url or len(url) > _MAX_URL_CHARS:
        raise ConfigError(
            f"must be at most {_MAX_URL_CHARS} printable ASCII characters without spaces",
            place="URL",
            value=url,
            remedy=remedy,
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(str(error), place="URL", value=url, remedy=remedy) from None
    if parts.username is not None or parts.password is not None:
        # The value is not shown: it may hold a password.
        raise ConfigError(
            "may hold no user name or password",
            place="URL",
            remedy=f"Use {key_option} for a key.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise ConfigError(
            "must begin with http:// or https://, name a host and have no #",
            place="URL",
            value=url,
            remedy=remedy,
        )
    return parts, port


def read_key(given: str | None, *, place: str) -> str | None:
    """Return the key, from a file after an @; its value is never shown.

    Args:
        given: the key, ``@FILE`` or None.
        place: the option or variable that it came from.

    Raises:
        ConfigError: the file cannot be read, or it is no key.
    """
    if given is None:
        return None
    key = given
    if given.startswith("@"):
        try:
            key = Path(given[1:]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}",
                place=f"{place} {given}",
                remedy="Name a text file that holds the key and nothing else.",
            ) from None
    if not key.isascii() or not key.isprintable() or not 1 <= len(key) <= _MAX_KEY_CHARS:
        raise ConfigError(
            f"must be 1 to {_MAX_KEY_CHARS} printable ASCII characters",
            place=place,
            remedy="Give the key, or @FILE to read it from a file.",
        )
    return key
