"""A person's decision, on record, to serve INT8 although the gate did not pass it."""

import unicodedata
from dataclasses import dataclass
from datetime import date

from pipeline.contract.errors import ConfigError

MAX_REASON_CHARS = 500
# Control, format (such as those that turn the direction of writing), surrogate, line and
# paragraph separators: they would make a record look like what it is not.
_REFUSED_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Why and when INT8 was accepted."""

    reason: str
    at: date

    def as_figures(self) -> dict[str, str]:
        """Return the decision as it stands in the bundle's manifest; ``at`` is an ISO date."""
        return {"reason": self.reason, "at": self.at.isoformat()}


def check_reason(reason: str) -> str:
    """Return a reason without the spaces around it.

    Raises:
        ConfigError: it is empty, too long, or holds a control character.
    """
    reason = reason.strip(" ")
    place, example = "--accept", "Say in a sentence why the loss is acceptable."
    if not reason:
        raise ConfigError("a reason is needed", place=place, value=reason, remedy=example)
    if len(reason) > MAX_REASON_CHARS:
        raise ConfigError(
            f"the reason may have {MAX_REASON_CHARS} characters",
            place=place,
            value=len(reason),
            remedy="Shorten it; a link may hold the rest.",
        )
    for character in reason:
        if unicodedata.category(character) in _REFUSED_CATEGORIES:
            raise ConfigError(
                "the reason may hold no control character",
                place=place,
                value=character,
                remedy="Write it in one line of plain text.",
            )
    return reason
