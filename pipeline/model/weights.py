"""Values of a new model: a Hugging Face folder's safetensors, or random numbers from the seed."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from pipeline.contract.errors import MissingFileError, TrainingError, WeightsError
from pipeline.model.architecture import Architecture
from pipeline.model.classifier import TextClassifier
from pipeline.model.factory import build_own_model, is_source_changed
from pipeline.model.finite import demand_finite

WEIGHTS_NAME = "model.safetensors"
_INITIALIZER_STD = 0.02
"""Standard deviation of new weights, as BERT's ``initializer_range``."""
_PREFIX = "bert."
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Constants that older files carry beside the weights."""
_NOT_ENCODER = ("classifier.", "cls.", "pooler.", "qa_outputs.")
"""Beginnings of what other tasks put on top of the encoder."""


def build_new_model(
    architecture: Architecture, *, seed: int, pretrained: Path | None
) -> tuple[nn.Module, list[str]]:
    """Return a model to train and notes for people about what was and was not loaded.

    The head always starts from the seed; so does everything else without ``pretrained``.
    Equal arguments give equal weights.

    Raises:
        MissingFileError: the folder has no model.safetensors.
        WeightsError: tensors are missing, extra, misshapen or not finite; it names them.
        ConfigError: the model by import path cannot be built.
        TrainingError: its file is not the one that the training was planned with.
    """
    if architecture.factory is not None:
        if is_source_changed(architecture):
            raise TrainingError(
                "the model's file was changed after the training was planned",
                place="model.factory",
                value=architecture.factory,
                remedy="Run `textlane train` again; on a cluster, every node needs the same file.",
            )
        return build_own_model(architecture, seed=seed)
    model = TextClassifier(architecture)
    initialise_weights(model, seed=seed)
    if pretrained is None:
        return model, ["all weights start from the seed"]
    return model, load_pretrained(model, pretrained)


def initialise_weights(model: nn.Module, *, seed: int) -> None:
    """Set every weight as BERT does: normal matrices, zero biases, unit LayerNorms."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=_INITIALIZER_STD, generator=generator)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.Linear | nn.LayerNorm):
            nn.init.zeros_(module.bias)


def load_pretrained(model: TextClassifier, folder: Path) -> list[str]:
    """Fill the encoder (and pooler) from a folder's model.safetensors; return notes.

    Raises:
        MissingFileError: there is no model.safetensors.
        WeightsError: the file is not safetensors, or its tensors do not fit or are not finite.
    """
    path = folder / WEIGHTS_NAME
    tensors = _read_tensors(path)
    wanted = {k: v for k, v in model.state_dict().items() if not k.startswith("classifier.")}
    not_used = [k for k in tensors if k not in wanted and k.startswith(_NOT_ENCODER)]
    given = {k: v for k, v in tensors.items() if k not in not_used and k not in _BUFFERS}
    _demand_same_names(wanted, given, path)
    _demand_same_shapes(wanted, given, path)
    remedy = "Take another copy of the model; this file is damaged or its training went wrong."
    demand_finite(given, place=str(path), remedy=remedy)
    model.load_state_dict(given, strict=False)
    notes = [f"{len(given)} tensors loaded from {path}", "the classifier starts from the seed"]
    if not_used:
        notes.append(f"not used by this task: {', '.join(sorted(not_used))}")
    return notes


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise MissingFileError(
            "there are no weights",
            place=str(path),
            remedy="Save the model as safetensors; pickled weights (.bin) are never read.",
        )
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise WeightsError(f"not a safetensors file: {error}", place=str(path)) from error
    return {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()}


def _demand_same_names(
    wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path
) -> None:
    missing, extra = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
    if missing and all(name.startswith("pooler.") for name in missing):
        raise WeightsError(
            f"tensors are missing: {', '.join(missing)}",
            place=str(path),
            remedy="This model was saved without a pooler; set model.pooling to mean.",
        )
    if missing or extra:
        lists = (("missing", missing), ("extra", extra))
        problem = "; ".join(f"tensors are {word}: {', '.join(n)}" for word, n in lists if n)
        raise WeightsError(
            problem,
            place=str(path),
            remedy="Check that config.json and model.safetensors are of the same model.",
        )


def _demand_same_shapes(
    wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path
) -> None:
    misfits = [
        f"{name} is {given[name].dtype} {list(given[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if given[name].shape != tensor.shape or not given[name].is_floating_point()
    ]
    if misfits:
        raise WeightsError(
            f"tensors are misshapen: {'; '.join(misfits)}",
            place=str(path),
            remedy="Check that config.json and model.safetensors are of the same model.",
        )
