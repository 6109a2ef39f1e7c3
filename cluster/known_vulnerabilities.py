"""Looks our pinned packages up among known vulnerabilities: `make check-deps`.

OSV (https://osv.dev, which has the Python Packaging Advisory Database) is asked for all pins in
one request; PyPI would need one for each.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pipeline.contract.errors import CommandError, ConfigError, TextlaneError

_OSV = "https://api.osv.dev"
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9,._-]+\])?==([A-Za-z0-9.+!_-]+)")
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
    """Return (package, version) of each pin in a file.

    Args:
        path: lines ``name==version`` (comments are passed over), or a ``pyproject.toml``, of which
            dependencies, extras and what it is built with count.

    Raises:
        ConfigError: there is no such file, it has no pin, or something else in the place of one.
    """
    try:
        text = path.read_text(encoding="utf-8")
        given = _of_project(text) if path.suffix == ".toml" else _of_lines(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=str(path)) from None
    pins = [parse_pin(word, place=f"{path}:{where}") for where, word in given]
    if not pins:
        raise ConfigError("has no pins", place=str(path), remedy="Name constraints.txt.")
    return pins


def parse_pin(text: str, *, place: str) -> tuple[str, str]:
    """Return (package, version) of ``name==version`` or ``name[extra]==version``.

    Raises:
        ConfigError: it is something else.
    """
    match = _PIN.fullmatch(text)
    if match is None:
        raise ConfigError("not a pin", place=place, value=text, remedy="Write name==version.")
    return match[1], match[2]


def _of_lines(text: str) -> list[tuple[str, str]]:
    lines = enumerate(text.splitlines(), start=1)
    words = [(str(number), line.partition("#")[0].strip()) for number, line in lines]
    return [(number, word) for number, word in words if word]


def _of_project(text: str) -> list[tuple[str, str]]:
    content = tomllib.loads(text)
    project = content.get("project", {})
    lists = {
        "build-system.requires": content.get("build-system", {}).get("requires", []),
        "project.dependencies": project.get("dependencies", []),
        **{
            f"project.optional-dependencies.{extra}": words
            for extra, words in project.get("optional-dependencies", {}).items()
        },
    }
    return [(place, str(word)) for place, words in lists.items() for word in words]


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
        epilog="example: python -m cluster.known_vulnerabilities constraints.txt pyproject.toml",
    )
    parser.add_argument(
        "pins",
        nargs="+",
        help="a file of lines name==version, as constraints.txt; a pyproject.toml; or one pin",
    )
    given: list[str] = parser.parse_args(argv).pins
    try:
        pins = _collect(given)
        found = find_vulnerabilities(pins)
    except TextlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for finding in found:
        print(f"{finding.package}=={finding.version}: {finding.advisory}, {finding.page}")
    vulnerable = len({finding.package for finding in found})
    print(f"{len(pins)} pins checked: {vulnerable} with known vulnerabilities")
    return 1 if found else 0


def _collect(given: Sequence[str]) -> list[tuple[str, str]]:
    pins: list[tuple[str, str]] = []
    for word in given:
        pins += [parse_pin(word, place=word)] if "==" in word else read_pins(Path(word))
    return list(dict.fromkeys(pins))


if __name__ == "__main__":
    sys.exit(main())
