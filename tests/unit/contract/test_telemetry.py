"""No command leaves ONNX Runtime's telemetry in the home folder."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bundles import write_tiny_bundle

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bundle(tmp_path):
    return write_tiny_bundle(tmp_path / "bundle").folder


def run_at_home(home, arguments, **environ):
    home.mkdir()
    kept = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**kept, "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), **environ},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "serve_app", "predict", "good", "--bundle"],
        ["-m", "serve_app", "tune", "--seconds", "0.01"],
        ["-m", "pipeline", "verify"],
    ],
)
def test_a_command_leaves_nothing_at_home(tmp_path, bundle, arguments):
    result = run_at_home(tmp_path / "home", [*arguments, bundle])

    assert "Traceback" not in result.stderr
    assert list((tmp_path / "home").rglob("*")) == []


@pytest.mark.parametrize("module", ["serve_app.session", "serve_app.app", "pipeline.export.run"])
def test_a_module_that_ray_or_a_stage_loads_leaves_nothing_at_home(tmp_path, module):
    code = f"import {module}, sys; assert 'onnxruntime' in sys.modules"

    result = run_at_home(tmp_path / "home", ["-c", code])

    assert result.returncode == 0, result.stderr
    assert [path for path in (tmp_path / "home").rglob("*") if "onnxruntime" in path.name] == []


def test_the_users_own_word_on_telemetry_counts(tmp_path):
    code = "import serve_app, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"

    result = run_at_home(tmp_path / "home", ["-c", code], ORT_DISABLE_TELEMETRY="0")

    assert result.stdout == "0\n"


def test_onnxruntime_is_imported_only_where_its_telemetry_was_refused_before():
    importing = set()
    for package in ("pipeline", "serve_app", "cluster"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
                if any(name.partition(".")[0] == "onnxruntime" for name in names):
                    importing.add(path.parent.relative_to(ROOT).as_posix())

    assert importing == {"pipeline/export", "serve_app"}
    for folder in importing:
        assert "refuse_telemetry()" in (ROOT / folder / "__init__.py").read_text(encoding="utf-8")
