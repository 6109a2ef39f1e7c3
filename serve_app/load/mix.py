"""A mix of made-up texts: which share of the requests has how many words."""

import re
from dataclasses import dataclass

import numpy as np

from pipeline.contract.errors import ConfigError

DEFAULT_MIX = "70:5-20,30:200-400"
MAX_ENTRIES = 6
"""As many as a picture can tell apart by colour."""
_MAX_WORDS = 20_000
_ENTRY = re.compile(r"(\d{1,6}(?:\.\d{1,6})?):(\d{1,6})-(\d{1,6})", flags=re.ASCII)
_REMEDY = f"Write share:words from-to, such as --mix {DEFAULT_MIX}."
# Frequent English words: each is one token or few in any vocabulary, as in real texts.
_FREQUENT = (
    "the of and to in is was it for with as on be at by this that from or are not but what all "
    "were when we there can an your which their said if do will each about how up out them then "
    "she many some so these would other into has more her two like him see time could no make "
    "than first been its who now people my made over did down only way find use may water long "
    "little very after words called just where most know get through back much before go good "
    "new write our used me man too any day same right look think also around another came come "
    "work three word must because does part even place well such here take why things help put "
    "years different away again off went old number great tell men say small every found still "
    "between name should home big give air line set own under read last never us left end along "
    "while might next sound below saw something thought both few those always looked show large "
    "often together asked house world going want school important until form food keep children "
    "feet land side without boy once animals life enough took sometimes four head above kind "
    "began almost live page got earth need far hand high year mother light parts country father "
    "let night following picture being study second eyes soon times story boys since white days "
    "ever paper hard near sentence better best across during today others however sure means "
    "knew try told young miles sun ways thing whole hear example heard several change answer "
    "room sea against top turned learn point city play toward five using himself usually film"
)
_WORDS = _FREQUENT.split()


@dataclass(frozen=True, kw_only=True)
class MixEntry:
    """One kind of text of a mix."""

    share: float
    """Share of the requests, in relation to the other entries'."""
    least_words: int
    most_words: int

    @property
    def name(self) -> str:
        """What tables call it."""
        if self.least_words == self.most_words:
            return f"{self.most_words} words"
        return f"{self.least_words}-{self.most_words} words"


def parse_mix(text: str) -> tuple[MixEntry, ...]:
    """Return the entries of a mix such as ``70:5-20,30:200-400``.

    Raises:
        ConfigError: it cannot be read so; names the part and the cure.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_ENTRIES:
        raise ConfigError(
            f"has {len(parts)} parts", place="--mix", remedy=f"Use at most {MAX_ENTRIES}."
        )
    entries = tuple(_parse_entry(part) for part in parts)
    names = [entry.name for entry in entries]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            "has the same words from-to twice",
            place="--mix",
            value=twice[0],
            remedy="Add their shares up into one part.",
        )
    return entries


def _parse_entry(part: str) -> MixEntry:
    matched = _ENTRY.fullmatch(part)
    if not matched:
        raise ConfigError("cannot be read", place="--mix", value=part, remedy=_REMEDY)
    share, least, most = float(matched[1]), int(matched[2]), int(matched[3])
    if share <= 0.0 or not 1 <= least <= most <= _MAX_WORDS:
        raise ConfigError(
            f"needs a share over 0 and 1 to {_MAX_WORDS:,} words, from at most to",
            place="--mix",
            value=part,
            remedy=_REMEDY,
        )
    return MixEntry(share=share, least_words=least, most_words=most)


def make_text(entry: MixEntry, random: np.random.Generator) -> str:
    """Return a made-up text; its number of words is drawn evenly from the entry's."""
    num_words = int(random.integers(entry.least_words, entry.most_words, endpoint=True))
    chosen = random.integers(len(_WORDS), size=num_words).tolist()
    return " ".join(_WORDS[index] for index in chosen).capitalize() + "."
