"""Which version answers whom: the table that the release desk hands to every ingress."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ServedVersion:
    """A version that can answer, and where its lanes run."""

    version: str
    """As answers carry it: bundle version and model file."""
    bundle: str
    """Absolute folder of its bundle."""
    app_name: str | None
    """Ray Serve application of its lanes; None: those that the ingress was built with."""


@dataclass(frozen=True, kw_only=True)
class RoutingTable:
    """Who answers from now on."""

    number: int
    """Grows with each change; an ingress never goes back to a lower one."""
    stable: ServedVersion
    candidate: ServedVersion | None = None
    """None: no release is under way, or it was rolled back."""
    weight: float = 0.0
    """Share of the keys that the candidate answers, 0 to 1."""
    salt: str = ""
    """Of this release, so that the next one's first keys are others."""
    shadow_share: float = 0.0
    """Share of the requests that are also run on the other version, off their way, 0 to 1."""
    shadow_texts_per_s: float = 0.0
    """What one ingress may spend on that."""
    keeps_texts: bool = False
    """Whether a sample of disagreements may hold texts."""
