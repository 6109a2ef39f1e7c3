"""What predict reads and writes where the locale knows only ASCII or the reader has left."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bundles import write_tiny_bundle

from serve_app.__main__ import main

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("predict") / "bundle")


def test_standard_input_is_utf8_where_the_locale_knows_only_ascii(bundle, capsys, monkeypatch):
    typed = io.TextIOWrapper(io.BytesIO("göod film\n".encode()), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", typed)

    assert main(["predict", "--bundle", str(bundle.folder)]) == 0

    assert capsys.readouterr().out.endswith("\tgöod film\n")


@pytest.mark.slow
def test_arguments_are_utf8_where_the_locale_knows_only_ascii(bundle):
    command = [sys.executable, "-m", "serve_app", "predict", "--bundle", bundle.folder, "göod"]
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **ascii_only}, capture_output=True, text=True
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("\tg\\u00f6od\n")


@pytest.mark.slow
def test_who_leaves_ends_an_endless_input(bundle):
    command = f"yes good | '{sys.executable}' -m serve_app predict --bundle '{bundle.folder}'"

    result = subprocess.run(
        ["bash", "-c", f"({command}; echo ${{PIPESTATUS[1]}} >&2) | head -1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert result.stdout == "positive\t0.7914\tgood\n"
    assert result.stderr.splitlines()[-1] == "0"
    assert "Traceback" not in result.stderr
