"""The images run as nobody special, carry Ray's settings and no torch where none is needed."""

import re
import tomllib
from pathlib import Path

import pytest

from cluster.ray_settings import Scope, values_for

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "cluster/images"
NAMES = ("train", "serve_cpu", "serve_gpu")
SERVING = ("serve_cpu", "serve_gpu")


def instructions(name):
    """Return (instruction, rest) of each, with continued lines joined and comments left out."""
    text = (FOLDER / f"{name}.Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def requirements(name):
    """Return what the image's first stage makes of our pyproject.toml."""
    (code,) = [
        re.fullmatch(r'python -c "(.*)"\s*> /requirements.txt', rest)[1]
        for kind, rest in instructions(name)
        if kind == "RUN" and "tomllib" in rest
    ]
    code = code.replace("/tmp/pyproject.toml", str(ROOT / "pyproject.toml"))
    lines = []
    exec(code, {"print": lambda *words, sep: lines.extend(words)})
    return lines


def test_the_images_are_the_three():
    assert {path.stem for path in FOLDER.glob("*.Dockerfile")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_as_a_user_without_rights(name):
    users = [rest for kind, rest in instructions(name) if kind == "USER"]

    assert users[-1:] == ["1000"]


@pytest.mark.parametrize("name", NAMES)
def test_what_changes_often_comes_after_what_changes_seldom(name):
    kinds = ["system", "packages", "settings", "code", "user"]
    signs = {"apt-get": 0, "-r /opt/requirements.txt": 1, "RAY_AUTH_MODE": 2}
    order = []
    for kind, rest in instructions(name):
        order += [rank for sign, rank in signs.items() if kind in {"RUN", "ENV"} and sign in rest]
        order += [3] if kind == "COPY" and "/opt/textlane/" in rest else []
        order += [4] if kind == "USER" else []

    assert order == sorted(order)
    assert set(order) == set(range(len(kinds)))


@pytest.mark.parametrize("name", NAMES)
def test_it_has_rays_settings_as_listed(name):
    scope = Scope.SERVING if name in SERVING else Scope.TRAINING
    env = " ".join(rest for kind, rest in instructions(name) if kind == "ENV")

    given = dict(re.findall(r'(RAY_\w+)="([^"]*)"', env))

    assert given == values_for(Scope.ALL, scope)


@pytest.mark.parametrize("name", NAMES)
def test_every_requirement_is_a_pin_of_ours(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    pins = {*project["dependencies"], *(pin for extra in extras for pin in extra)}

    found = requirements(name)

    assert {line.replace("[cuda,cudnn]", "") for line in found} <= pins
    assert set(project["dependencies"]) <= set(found)
    assert any(line.startswith("torch==") for line in found) == (name == "train")


def test_the_gpu_image_has_one_onnxruntime():
    found = [line for line in requirements("serve_gpu") if line.startswith("onnxruntime")]

    assert len(found) == 1
    assert found[0].startswith("onnxruntime-gpu[cuda,cudnn]==")


def test_the_demos_inputs_in_the_image_are_those_of_the_makefile():
    (inputs,) = re.findall(r"^DEMO_INPUTS := (.*)$", (ROOT / "Makefile").read_text(), flags=re.M)

    assert any(inputs in rest for kind, rest in instructions("train") if kind == "RUN")


@pytest.mark.parametrize("name", NAMES)
def test_every_copied_path_exists_and_reaches_the_builder(name):
    sent = (ROOT / ".dockerignore").read_text().split()
    for kind, rest in instructions(name):
        if kind == "COPY" and not rest.startswith("--from="):
            *sources, _ = rest.split()
            for source in sources:
                assert (ROOT / source).exists()
                assert f"!{source}" in sent


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_command_textlane_with_every_package_that_pyproject_names(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {one.partition(".")[0] for one in project["tool"]["setuptools"]["packages"]}
    files = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"}
    steps = [rest for kind, rest in instructions(name) if kind in {"COPY", "RUN"}]

    copied = {word for rest in steps if rest.endswith("/opt/textlane/") for word in rest.split()}
    assert files <= copied
    assert {f"{one} /opt/textlane/{one}" for one in packages} <= set(steps)
    assert steps[-1] == "pip install --no-cache-dir --no-deps -e /opt/textlane"


@pytest.mark.parametrize("name", NAMES)
def test_rays_launcher_finds_what_it_calls_in_a_container(name):
    (system,) = [rest for kind, rest in instructions(name) if "apt-get install" in rest]

    assert {"openssh-client", "rsync"} <= set(system.split())
