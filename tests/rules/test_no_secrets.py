"""No secret stands in a file of the repository: not in job files, manifests or settings."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SECRET_NAME = re.compile(
    r"(password|passwd|secret|token|api_?keys?|private_key|credential)s?$", re.I
)
# Keys that name where a secret is, not what it is.
NAMES_A_PLACE = re.compile(
    r"(secretName|secretKeyRef|automountServiceAccountToken|HttpTokens|ssh_private_key)$"
)
LITERAL = (
    re.compile(r"AKIA[0-9A-Z]{16}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    re.compile(r"\b(?:ghp|gho|glpat|xox[bp]|hf)[_-][A-Za-z0-9]{20,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}\."),
    re.compile(r"://[^/\s:@{}$<>]+:[^/\s:@{}$<>]+@"),
)


def tracked(*endings):
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [p for p in paths if p.is_file() and (not endings or p.suffix in endings)]


YAML_FILES = [path for path in tracked(".yaml", ".yml") if "tests" not in path.parts]


def secrets_in(value, place=""):
    """Yield where a value stands under a name for secrets; a nested mapping is a reference."""
    if isinstance(value, dict):
        for key, item in value.items():
            is_named = SECRET_NAME.search(str(key)) and not NAMES_A_PLACE.search(str(key))
            if is_named and isinstance(item, str | int | list) and not isinstance(item, bool):
                yield f"{place}.{key}"
            yield from secrets_in(item, f"{place}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from secrets_in(item, place)
    elif isinstance(value, str) and "\n" in value and ":" in value:
        try:
            yield from secrets_in(yaml.safe_load(value), f"{place}|")
        except yaml.YAMLError:
            return  # Text that is no YAML of its own has no names.


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_names_places_of_secrets_and_has_none(path):
    found = [place for doc in yaml.safe_load_all(path.read_text()) for place in secrets_in(doc)]

    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "api_keys: [a]",
        "args: {api_keys: ['a']}",
        "env:\n  RAY_AUTH_TOKEN: abc",
        "redisPassword: abc",
        "serveConfigV2: |\n  applications:\n    - args: {api_keys: [a]}\n",
    ],
)
def test_a_secret_in_yaml_is_found(text):
    assert list(secrets_in(yaml.safe_load(text)))


def test_no_file_holds_what_looks_like_a_key():
    found = {}
    for path in tracked():
        text = path.read_bytes().decode(errors="replace")
        hits = [match[0] for pattern in LITERAL for match in pattern.finditer(text)]
        if hits and "tests" not in path.parts:  # They make up some, to see them refused.
            found[str(path.relative_to(ROOT))] = hits

    assert found == {}
