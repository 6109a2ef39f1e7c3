"""A model by import path is found, built from the seed, and refused in words when it cannot be."""

import random
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from model_samples import build_architecture
from torch import nn

from pipeline.config import find_factory_file
from pipeline.contract.errors import ConfigError, TrainingError
from pipeline.contract.folder import sha256_file
from pipeline.model.build import build_model
from pipeline.model.group_norm import PositionGroupNorm
from pipeline.model.weights import build_new_model


def own(name, **changes):
    """Return the architecture of a model of own_models, or of another module."""
    factory = name if ":" in name else f"own_models:{name}"
    changes.setdefault("factory_sha256", sha256_file(find_factory_file(factory)))
    return replace(build_architecture(factory=factory), **changes)


def build(name, *, seed=3, **changes):
    return build_new_model(own(name, **changes), seed=seed, pretrained=None)


def message_for(name, **changes):
    with pytest.raises(ConfigError) as caught:
        build(name, **changes)
    return str(caught.value)


def write_module(folder, name, text):
    (folder / f"{name}.py").write_text(text)


def test_it_is_called_with_the_jobs_facts_and_its_arguments():
    model, notes = build("bag", factory_arguments={"width": 48})

    assert model.model.embedding.weight.shape == (30, 48)
    assert model.model.classifier.weight.shape == (3, 48)
    assert notes[0] == "the model is that of own_models:bag; its weights start from the seed"


def test_its_logits_are_float32_under_autocast_too():
    model, _ = build("bag")
    ids = torch.ones(2, 3, dtype=torch.int64)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids, torch.ones_like(ids))

    assert (logits.dtype, logits.shape) == (torch.float32, (2, 3))


def test_the_seed_alone_decides_the_weights_whoever_draws_them():
    def weights(seed):
        return torch.cat([p.flatten() for p in build("drawn_elsewhere", seed=seed)[0].parameters()])

    first = weights(3)
    random.random(), np.random.random(), torch.rand(1)

    assert torch.equal(first, weights(3))
    assert not torch.equal(first, weights(4))


def test_building_leaves_the_random_numbers_of_the_process_alone():
    def draws():
        return random.random(), float(np.random.random()), float(torch.rand(()))

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = draws()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)

    build("drawn_elsewhere")

    assert draws() == expected


def test_batch_norms_are_replaced_and_said():
    model, notes = build("bag")

    assert isinstance(model.model.norm, PositionGroupNorm)
    assert "GroupNorm stands in the place of BatchNorm in norm: a step's rows run" in notes[1]


def test_a_loaded_model_takes_the_trained_weights():
    trained, _ = build("bag", seed=8)

    loaded = build_model(own("bag"))
    loaded.load_state_dict(trained.state_dict())

    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(
        loaded.eval()(ids, torch.ones_like(ids)), trained.eval()(ids, torch.ones_like(ids))
    )


def test_a_module_of_the_working_directory_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in sys.path if p != str(tmp_path)])
    write_module(tmp_path, "model_here", "from own_models import bag as build\n")

    model, _ = build("model_here:build")

    assert isinstance(model, nn.Module)


def test_a_module_that_is_nowhere_is_refused_with_where_it_was_sought(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])

    with pytest.raises(ConfigError) as caught:
        find_factory_file("nowhere.at_all:build")

    message = str(caught.value)
    assert message.startswith("model.factory: there is no module nowhere.at_all; searched were /")
    assert str(tmp_path) in message
    assert "Run the command in the folder that the import path starts in" in message


def test_a_package_without_a_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "only_a_folder").mkdir()

    with pytest.raises(ConfigError, match="only_a_folder is not a Python file"):
        find_factory_file("only_a_folder:build")


def test_a_package_that_fails_is_refused_with_its_error(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "failing_package").mkdir()
    write_module(tmp_path / "failing_package", "__init__", "import not_installed_at_all\n")

    with pytest.raises(ConfigError, match=r"failing_package\.model failed: ModuleNotFoundError"):
        find_factory_file("failing_package.model:build")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import not_installed_at_all\n", "ModuleNotFoundError at broken_0.py:1: No module named"),
        ("x = 1\ndef build(:\n", "SyntaxError at broken_1.py:2: "),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_with_the_line(
    tmp_path, monkeypatch, text, problem
):
    monkeypatch.syspath_prepend(tmp_path)
    name = problem.partition(" at ")[2].partition(".py")[0]
    write_module(tmp_path, name, text)

    assert f"importing {name} failed {problem}" in message_for(f"{name}:build")


@pytest.mark.parametrize("name", ["nothing", "NUMBER"])
def test_a_function_that_is_not_there_is_refused_with_those_that_are(name):
    message = message_for(name)

    assert f"own_models.py has no function {name}; it has Bag, Fixed, bag, token_bag" in message


def test_a_factory_that_raises_is_refused_with_error_and_line():
    message = message_for("raising")

    assert "the factory raised RuntimeError at own_models.py:" in message
    assert ": no weights here (got 'own_models:raising')" in message


def test_arguments_that_it_does_not_take_are_refused_with_its_parameters():
    message = message_for("bag", factory_arguments={"with": 5})

    assert "got an unexpected keyword argument 'with'; its parameters are (*, vocab_size" in message
    assert "width=32)" in message


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a_list", "must return a torch.nn.Module, not list"),
        ("frozen", "no parameters to train"),
        ("without_parameters", "no parameters to train"),
        ("in_double", "embedding.weight is torch.float64 on cpu"),
        ("on_meta", "embedding.weight is torch.float32 on meta"),
        ("lazy", "sizes are left open in 0.weight, 0.bias"),
        ("one_channel", "a BatchNorm over a single channel cannot become a GroupNorm"),
    ],
)
def test_what_cannot_be_trained_is_refused(name, problem):
    assert problem in message_for(name)


def test_a_file_that_changed_since_the_training_was_planned_is_refused():
    with pytest.raises(TrainingError, match="was changed after the training was planned"):
        build("bag", factory_sha256="0" * 64)
