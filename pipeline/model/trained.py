"""A trained model as evaluation and export take it: weights, labels and tokenizer together."""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.contract.errors import AlteredFileError, FolderError
from pipeline.contract.folder import verify_files
from pipeline.contract.tokenization import TextEncoder, TextSettings, load_text_encoder
from pipeline.model.architecture import Architecture
from pipeline.model.build import build_model
from pipeline.model.checkpoint_manifest import chosen_entry, read_checkpoint_manifest
from pipeline.model.factory import is_source_changed
from pipeline.model.finite import demand_finite_weights


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """The chosen checkpoint of a finished training: its last, or its best."""

    model: nn.Module
    """In eval mode, on the CPU; ``forward(input_ids, attention_mask) -> float32 logits``."""
    labels: tuple[str, ...]
    """Label names; position is the index on the last axis of logits."""
    task: str
    architecture: Architecture
    text_settings: TextSettings
    encoder: TextEncoder
    """Gives the ids that the model was trained with."""
    manifest: dict[str, Any]
    """The checkpoint folder's manifest."""
    checkpoint_file: Path
    checkpoint_sha256: str
    fingerprint: str
    """Hash of the settings and inputs of the training."""


def load_trained(checkpoint_dir: Path) -> TrainedModel:
    """Return the chosen model of a checkpoint folder, its bytes checked.

    Raises:
        MissingFileError: the folder, its manifest or a file is not there.
        AlteredFileError: the checkpoint or the tokenizer is not what training wrote, or the
            file of a model by import path is another than training used.
        ConfigError: the model by import path cannot be built.
        SchemaVersionError: another version wrote the folder.
        FolderError: the training is not finished, holds no best checkpoint where that is asked
            for, or the file holds another model.
        WeightsError: a weight is NaN or infinite.
    """
    manifest = read_checkpoint_manifest(checkpoint_dir)
    chosen = chosen_entry(manifest)
    if chosen is None:
        is_finished = manifest["is_finished"]
        raise FolderError(
            "no checkpoint is the best" if is_finished else "the training is not finished",
            place=str(checkpoint_dir),
            remedy="Run `textlane train`; it goes on from the last checkpoint.",
        )
    verify_files(checkpoint_dir, {chosen["file"]: chosen["sha256"]})
    path = checkpoint_dir / str(chosen["file"])
    architecture = Architecture(**manifest["architecture"])
    text_settings = TextSettings(**manifest["text_settings"])
    encoder = load_text_encoder(checkpoint_dir, text_settings)
    if encoder.fingerprint != manifest["text_fingerprint"]:
        raise AlteredFileError(
            "tokenizer and text settings are not those of training",
            place=str(checkpoint_dir),
            value=encoder.fingerprint,
            remedy="Run `textlane train --force`.",
        )
    return TrainedModel(
        model=_load_model(path, architecture),
        labels=tuple(manifest["labels"]),
        task=str(manifest["task"]),
        architecture=architecture,
        text_settings=text_settings,
        encoder=encoder,
        manifest=manifest,
        checkpoint_file=path,
        checkpoint_sha256=str(chosen["sha256"]),
        fingerprint=str(manifest["fingerprint"]),
    )


def _load_model(path: Path, architecture: Architecture) -> nn.Module:
    if architecture.factory is not None and is_source_changed(architecture):
        # The weights may still fit, but they were trained for other code.
        raise AlteredFileError(
            f"the file of {architecture.factory} is not that of this training, whose sha256 is "
            f"{architecture.factory_sha256}",
            place=str(path.parent),
            remedy="Put that file back, or run `textlane train` to train the new model.",
        )
    model = build_model(architecture)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        model.load_state_dict(state["model"])
    except (RuntimeError, KeyError, pickle.UnpicklingError) as error:
        raise FolderError(
            f"the checkpoint does not hold this model: {error}",
            place=str(path),
            remedy="Run `textlane train --force`.",
        ) from error
    demand_finite_weights(
        model,
        place=str(path),
        remedy="Run `textlane train --force` with a lower train.base_lr or with "
        "train.final_weights=best.",
    )
    return model.eval()
