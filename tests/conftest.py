"""What every test may rely on: no usage statistics, no settings from the caller's environment."""

import os

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TEXTLANE_"):
            monkeypatch.delenv(name)
