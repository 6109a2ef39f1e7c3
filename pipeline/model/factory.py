"""Builds a model of the user's own from its import path, and refuses what cannot be trained."""

import inspect
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.config import FACTORY_FACTS, find_factory_file
from pipeline.contract.errors import ConfigError
from pipeline.contract.folder import sha256_file
from pipeline.model.architecture import Architecture
from pipeline.model.group_norm import replace_batch_norms

_PLACE = "model.factory"


class OwnModel(nn.Module):
    """A model by import path as training, evaluation and export call it."""

    def __init__(self, model: nn.Module) -> None:
        """Wrap a checked model."""
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the model's logits as float32, also where autocast made them bf16."""
        logits: Tensor = self.model(input_ids, attention_mask)
        # What is no logits goes on as it is; pipeline.model.shape_check refuses it.
        is_float = isinstance(logits, Tensor) and logits.is_floating_point()
        return logits.float() if is_float else logits


def build_own_model(architecture: Architecture, *, seed: int) -> tuple[OwnModel, list[str]]:
    """Return the model of ``architecture.factory`` and notes for people.

    Equal seeds give equal weights; the process's own random numbers go on as before.

    Raises:
        ConfigError: the module or function is not there, raises, does not take its arguments,
            or returns no module of fp32 parameters on the CPU.
    """
    name = str(architecture.factory)
    factory = _load_function(name)
    arguments = {
        "vocab_size": architecture.vocab_size,
        "num_labels": architecture.num_labels,
        "max_seq_len": architecture.max_position_embeddings,
        "pad_token_id": architecture.pad_token_id,
        **architecture.factory_arguments,
    }
    _demand_arguments(factory, arguments, name)
    with _seeded(seed):
        try:
            model = factory(**arguments)
        except Exception as error:  # Whatever the user's code raises is the user's to read.
            raise _user_error("the factory raised", error, name) from error
    _demand_module(model, name)
    own = OwnModel(model)
    notes = [f"the model is that of {name}; its weights start from the seed"]
    if replaced := replace_batch_norms(own):
        layers = ", ".join(layer.removeprefix("model.") for layer in replaced)
        notes.append(
            f"GroupNorm stands in the place of BatchNorm in {layers}: a step's rows run in "
            "several forward passes, and each would have batch statistics of its own"
        )
    _demand_parameters(model, name)
    return own, notes


def is_source_changed(architecture: Architecture) -> bool:
    """Return whether the factory's file is another than when the training was planned.

    Raises:
        ConfigError: the module cannot be found.
    """
    file = find_factory_file(str(architecture.factory))
    return sha256_file(file) != architecture.factory_sha256


def _load_function(name: str) -> Callable[..., Any]:
    file = find_factory_file(name)
    module_name, _, function_name = name.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:  # As above: it runs the user's code.
        raise _user_error(f"importing {module_name} failed", error, name) from error
    found = getattr(module, function_name, None)
    if not callable(found):
        raise ConfigError(
            f"{file} has no function {function_name}; it has {_function_names(module)}",
            place=_PLACE,
            value=name,
            remedy="Name one of its functions after the colon.",
        )
    function: Callable[..., Any] = found
    return function


def _function_names(module: ModuleType) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    return ", ".join(own) or "none"


def _demand_arguments(factory: Callable[..., Any], arguments: dict[str, Any], name: str) -> None:
    try:
        signature = inspect.signature(factory)
    except ValueError:  # One written in C tells no signature; calling it will tell.
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"the factory cannot be called with {', '.join(arguments)}: {error}; its parameters "
            f"are {signature}",
            place=_PLACE,
            value=name,
            remedy=f"It must take {', '.join(FACTORY_FACTS)} and what model.factory_arguments "
            "names.",
        ) from None


def _user_error(problem: str, error: Exception, name: str) -> ConfigError:
    frames = traceback.extract_tb(error.__traceback__)
    file = str(find_factory_file(name))
    # The last line of the user's own file says more than one deep inside torch.
    own = [frame for frame in frames if frame.filename == file] or frames[-1:]
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{Path(error.filename).name}:{error.lineno}"
    return ConfigError(
        f"{problem} {type(error).__name__} at {where}: {error}",
        place=_PLACE,
        value=name,
        remedy="Mend the file, or change model.factory_arguments.",
    )


def _demand_module(model: Any, name: str) -> None:
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"the factory must return a torch.nn.Module, not {type(model).__name__}",
            place=_PLACE,
            value=name,
            remedy="Return the model, untrained or with weights of its own.",
        )
    lazy = [n for n, p in model.named_parameters() if nn.parameter.is_lazy(p)]
    if lazy:
        raise ConfigError(
            f"sizes are left open in {', '.join(lazy)}",
            place=_PLACE,
            value=name,
            remedy="Give the layers their sizes; Lazy modules get theirs too late.",
        )


def _demand_parameters(model: nn.Module, name: str) -> None:
    parameters = list(model.named_parameters())
    if not any(parameter.requires_grad for _, parameter in parameters):
        raise ConfigError(
            "the model has no parameters to train",
            place=_PLACE,
            value=name,
            remedy="Make layers attributes of the module, so that torch finds them, with "
            "requires_grad left on.",
        )
    misfits = [
        f"{own} is {parameter.dtype} on {parameter.device}"
        for own, parameter in parameters
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu"
    ]
    if misfits:
        raise ConfigError(
            f"parameters must be torch.float32 on the cpu: {'; '.join(misfits)}",
            place=_PLACE,
            value=name,
            remedy="Leave both as torch makes them; train.precision and ray.use_gpu decide later.",
        )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    python_state, numpy_state = random.getstate(), np.random.get_state()
    # The CPU's generator alone: the parameters must be there, and CUDA need not start for it.
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
