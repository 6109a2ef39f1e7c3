"""Ray's settings have one list: what is used is in it, and its file is what it makes."""

import re
import subprocess
from pathlib import Path

from cluster.ray_settings import ENV_FILE, RAY_SETTINGS, env_text

ROOT = Path(__file__).parents[2]
# Names of ours that look like Ray's.
NOT_RAYS = {"RAY_PASSES", "RAY_SETTINGS", "RAY_HEAD_IP"}
NAME = re.compile(r"\bRAY_[A-Z][A-Za-z0-9_]*")


def used_names():
    """Return name → files, over everything in the repository but tests."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = {}
    for name in listed.stdout.splitlines():
        path = ROOT / name
        is_list = path.name in {"ray_settings.py", "ray_settings.env"}
        if path.is_file() and not name.startswith("tests/") and not is_list:
            for word in NAME.findall(path.read_text(encoding="utf-8", errors="replace")):
                found.setdefault(word, set()).add(name)
    return found


def test_every_setting_that_is_used_is_listed():
    listed = {setting.name for setting in RAY_SETTINGS} | NOT_RAYS

    assert {name: files for name, files in used_names().items() if name not in listed} == {}


def test_every_setting_that_is_listed_is_used():
    assert {setting.name for setting in RAY_SETTINGS} - set(used_names()) == set()


def test_the_file_is_what_the_list_makes():
    assert ENV_FILE.read_text() == env_text(), "run: python -m cluster.ray_settings"


def test_names_are_unique_and_each_says_why():
    names = [setting.name for setting in RAY_SETTINGS]

    assert len(set(names)) == len(names)
    assert all(setting.why.endswith(".") for setting in RAY_SETTINGS)


def test_the_file_is_read_as_the_list_has_it():
    lines = [line for line in ENV_FILE.read_text().splitlines() if line and line[0] != "#"]

    assert dict(line.split("=", 1) for line in lines) == {
        setting.name: setting.value for setting in RAY_SETTINGS if setting.value is not None
    }
