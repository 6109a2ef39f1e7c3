"""Who may import whom, also through others."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RAY_RIM = {
    "cluster/local.py",
    "pipeline/data/passes_ray.py",
    "pipeline/ray_session.py",
    "pipeline/train/ray_metrics.py",
    "pipeline/train/resize_notice.py",
    "pipeline/train/trainer.py",
    "serve_app/app.py",
    "serve_app/ingress.py",
    "serve_app/lane.py",
    "serve_app/lane_deployment.py",
    "serve_app/metrics.py",
    "serve_app/release/desk_replica.py",
    "serve_app/release/lane_apps.py",
    "serve_app/release/version_loader.py",
    "serve_app/remote_lane.py",
}


def source_files():
    return [
        path.relative_to(ROOT)
        for package in ("pipeline", "serve_app", "cluster")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def imported_packages(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_ray_is_imported_only_at_the_rim():
    with_ray = {path.as_posix() for path in source_files() if "ray" in imported_packages(path)}

    assert with_ray == RAY_RIM


def test_torch_is_imported_only_in_the_pipeline_and_not_in_its_contract():
    with_torch = [path for path in source_files() if "torch" in imported_packages(path)]

    assert with_torch
    assert all(path.parts[0] == "pipeline" and path.parts[1] != "contract" for path in with_torch)


def test_direction_of_imports_holds_transitively():
    linter = Path(sys.executable).with_name("lint-imports")

    result = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        ("pipeline.contract.bundle, pipeline.contract.shards, pipeline.config", "ray torch"),
        ("pipeline.__main__, pipeline.quality, pipeline.data.plan", "ray torch onnxruntime"),
        ("pipeline.export.verify", "ray torch"),
        ("pipeline.train.loop, pipeline.model.trained, pipeline.train.run", "ray"),
        ("serve_app.__main__, serve_app.session, serve_app.config", "ray torch"),
        ("serve_app.app, serve_app.ingress, serve_app.lane", "torch pyarrow.parquet"),
        # What no serving install has.
        ("cluster.__main__, cluster.local, cluster.serving", "ray torch onnxruntime pyarrow"),
    ],
)
def test_a_fresh_process_loads_nothing_forbidden(modules, forbidden):
    code = f"import sys, {modules}; print([m for m in {forbidden.split()!r} if m in sys.modules])"

    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )

    assert result.stdout.strip() == "[]", result.stdout + result.stderr


SERVING_ALONE = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import serve_app
for module in pkgutil.walk_packages(serve_app.__path__, "serve_app."):
    importlib.import_module(module.name)
from cluster import local
from cluster.__main__ import main as serve
from pipeline.__main__ import main as textlane
for main, command in ((serve, "serve"), (textlane, "load"), (textlane, "predict")):
    try:
        main([command, "--help"])
    except SystemExit as error:
        assert error.code == 0
"""


def test_a_serving_install_has_all_that_serving_imports():
    # What the extra `train` alone brings, by the names of its modules.
    absent = ["matplotlib", "onnx", "pyarrow", "safetensors", "sympy", "tensorboardX", "torch"]

    result = subprocess.run(
        [sys.executable, "-c", SERVING_ALONE.format(absent=absent)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert result.returncode == 0, result.stderr
