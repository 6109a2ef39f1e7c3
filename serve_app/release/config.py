"""Where `textlane release` finds the desk: command line > environment > default."""

import os

from pipeline.contract.errors import ConfigError
from serve_app.service_address import read_key, split_url

DEFAULT_URL = "http://127.0.0.1:8002"
URL_VARIABLE, KEY_VARIABLE = "TEXTLANE_RELEASE_URL", "TEXTLANE_RELEASE_KEY"
_PREFIX = "TEXTLANE_RELEASE_"


def find_desk_url(given: str | None) -> str:
    """Return the desk's address without a slash at its end.

    Args:
        given: on the command line; None: ``TEXTLANE_RELEASE_URL``, or this machine's port 8002.

    Raises:
        ConfigError: it is no address, or the environment has a misspelt setting.
    """
    _refuse_unknown_variables()
    url = given if given is not None else os.environ.get(URL_VARIABLE, DEFAULT_URL)
    parts, _ = split_url(url, example=DEFAULT_URL, key_option="--key")
    if parts.query:
        raise ConfigError("must have no ?", place="URL", value=url, remedy="Leave it out.")
    return url.rstrip("/").removesuffix("/release").rstrip("/")


def find_desk_key(given: str | None) -> str | None:
    """Return the key to send, if there is one; ``@FILE`` is read.

    Args:
        given: on the command line; None: ``TEXTLANE_RELEASE_KEY``, if set.

    Raises:
        ConfigError: the file cannot be read, or it is no key.
    """
    if given is not None:
        return read_key(given, place="--key")
    return read_key(os.environ.get(KEY_VARIABLE), place=f"environment {KEY_VARIABLE}")


def _refuse_unknown_variables() -> None:
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in (URL_VARIABLE, KEY_VARIABLE):
            # The value is not shown: it may be a key.
            raise ConfigError(
                "unknown setting",
                place=f"environment {name}",
                remedy=f"There are {URL_VARIABLE} and {KEY_VARIABLE}; a plan's settings stand in "
                "its file.",
            )
