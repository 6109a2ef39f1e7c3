"""Looks our pinned packages up among known vulnerabilities: `make check-deps`.

OSV (https://osv.dev, which has the Python Packaging Advisory Database) is asked for all pins in
one request; PyPI would need one for each.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pipeline.contract.errors import CommandError, ConfigError, TextlaneError

_OSV = "https://api.osv.dev"
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_-]+)")
_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """One pinned package with one known vulnerability."""

    package: str
    version: str
    advisory: str
    """OSV's name of it, such as ``PYSEC-2024-1``."""

    @property
    def page(self) -> str:
        """Where it is described."""
        return f"https://osv.dev/vulnerability/{self.advisory}"


def read_pins(path: Path) -> list[tuple[str, str]]:
    """Return (package, version) of each line ``name==version``; comments are passed over.

    Raises:
        ConfigError: there is no such file, it has no pin, or a line that is something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=str(path)) from None
    pins = []
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _PIN.fullmatch(text)
        if match is None:
            raise ConfigError(
                "not a pin",
                place=f"{path}:{number}",
                value=text,
                remedy="Each line must be name==version.",
            )
        pins.append((match[1], match[2]))
    if not pins:
        raise ConfigError("has no pins", place=str(path), remedy="Name constraints.txt.")
    return pins


def find_vulnerabilities(
    pins: Sequence[tuple[str, str]], *, transport: httpx.BaseTransport | None = None
) -> list[Finding]:
    """Return what is known of the pins, in their order.

    Args:
        pins: (package, version).
        transport: how OSV is reached; None is the network.

    Raises:
        CommandError: OSV was not reached or did not answer as expected; nothing is known then.
    """
    queries = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
        for name, version in pins
    ]
    try:
        with httpx.Client(base_url=_OSV, timeout=_TIMEOUT_S, transport=transport) as client:
            response = client.post("/v1/querybatch", json={"queries": queries})
            response.raise_for_status()
            answers: list[dict[str, Any]] = response.json()["results"]
            return [
                Finding(package=name, version=version, advisory=str(one["id"]))
                for (name, version), answer in zip(pins, answers, strict=True)
                for one in answer.get("vulns", [])
            ]
    except (httpx.HTTPError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(
            f"not checked: {_OSV} did not answer as expected ({type(error).__name__}: {error})",
            remedy="Run it where the internet can be reached, or behind HTTPS_PROXY.",
        ) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was found; 0 nothing, 1 something, 2 it could not be checked."""
    parser = argparse.ArgumentParser(
        prog="python -m cluster.known_vulnerabilities",
        description="Look pinned packages up among known vulnerabilities (one request to osv.dev).",
        epilog="example: python -m cluster.known_vulnerabilities constraints.txt",
    )
    parser.add_argument("file", type=Path, help="lines of name==version, as constraints.txt")
    path: Path = parser.parse_args(argv).file
    try:
        pins = read_pins(path)
        found = find_vulnerabilities(pins)
    except TextlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for finding in found:
        print(f"{finding.package}=={finding.version}: {finding.advisory}, {finding.page}")
    vulnerable = len({finding.package for finding in found})
    print(f"{len(pins)} pins of {path.name} checked: {vulnerable} with known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
