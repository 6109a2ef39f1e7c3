"""What every test may rely on: no usage statistics, no settings from the caller's environment."""

import os
import secrets

import pytest
from hypothesis import settings

# No unit test is judged by its time: a busy machine would fail it.
settings.register_profile("textlane", deadline=None)
settings.load_profile("textlane")

# Ray reads these as it is imported, which some test files do. Without a token in the
# environment it would save one in the home folder.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(16)
# Some tests import onnxruntime before any package of ours.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TEXTLANE_"):
            monkeypatch.delenv(name)
