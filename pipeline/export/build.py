"""Builds a bundle's model files from a trained model and checks each against it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from pipeline.config import ExportSettings, Task
from pipeline.contract.bundle import FP32_NAME, INT8_NAME
from pipeline.export.fusion import fuse_graph
from pipeline.export.graph_checks import check_graph
from pipeline.export.onnx_graph import as_logits_function, export_graph
from pipeline.export.onnx_session import open_model
from pipeline.export.parity import ParityCell, build_parity_cells, check_parity
from pipeline.export.quantize import quantize_graph
from pipeline.model.trained import TrainedModel

_PLAIN_NAME = "unfused.onnx"


@dataclass(frozen=True, kw_only=True)
class BuiltModels:
    """What was written and what its checks measured."""

    names: tuple[str, ...]
    """Model files, FP32 first."""
    parity: float
    """Largest difference of FP32's logits from torch's."""
    fused: dict[str, int]
    """Fused operators by kind; empty when nothing was fused."""
    notes: tuple[str, ...]
    """What was left out and why, for people."""


def build_models(
    folder: Path,
    trained: TrainedModel,
    *,
    settings: ExportSettings,
    seq_lens: Sequence[int],
    seed: int,
) -> BuiltModels:
    """Write ``model.onnx`` and, if set, ``model_int8.onnx`` into a folder.

    Args:
        folder: where the files go.
        trained: the model in eval mode.
        settings: opset, tolerance, fusion and INT8.
        seq_lens: lengths of the parity grid.
        seed: draws the parity grid's ids and masks.

    Raises:
        ExportError: a file fails a check.
    """
    shape, task = trained.architecture, Task(trained.task)
    plain = folder / _PLAIN_NAME
    export_graph(trained.model, plain, opset=settings.opset, task=task, num_labels=shape.num_labels)
    cells = build_parity_cells(
        as_logits_function(trained.model),
        seq_lens=seq_lens,
        vocab_size=shape.vocab_size,
        seed=seed,
        sep_token_id=shape.sep_token_id,
    )
    parity = check_parity(open_model(plain), cells, atol=settings.atol, name=FP32_NAME)
    names, notes = [FP32_NAME], []
    if settings.int8:
        if _write_int8(plain, folder / INT8_NAME, trained, opset=settings.opset):
            names.append(INT8_NAME)
        else:
            notes.append("no INT8 model: there is no matrix product but the one of the logits")
    fused: dict[str, int] = {}
    is_known = shape.factory is None
    if settings.fuse and not is_known:
        notes.append("not fused: what a model of model.factory must contain is not known")
    if settings.fuse and is_known:
        fused, parity = _fuse(plain, trained, settings=settings, cells=cells)
        plain.unlink()
    else:
        plain.rename(folder / FP32_NAME)
    return BuiltModels(names=tuple(names), parity=parity, fused=fused, notes=tuple(notes))


def modules_outside_encoder(model: nn.Module) -> list[str]:
    """Return the names of a model's parts with weights, the encoder left out.

    Example: ``["embeddings", "pooler", "classifier"]``.
    """
    return [
        name
        for name, child in model.named_children()
        if name != "encoder" and next(child.parameters(), None) is not None
    ]


def _write_int8(plain: Path, target: Path, trained: TrainedModel, *, opset: int) -> bool:
    shape = trained.architecture
    keep_float = modules_outside_encoder(trained.model) if shape.factory is None else None
    if quantize_graph(plain, target, keep_float=keep_float) is None:
        return False
    check_graph(target, opset=opset, task=Task(trained.task), num_labels=shape.num_labels)
    return True


def _fuse(
    plain: Path, trained: TrainedModel, *, settings: ExportSettings, cells: list[ParityCell]
) -> tuple[dict[str, int], float]:
    shape = trained.architecture
    target = plain.with_name(FP32_NAME)
    fused = fuse_graph(
        plain,
        target,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        hidden_size=shape.hidden_size,
    )
    check_graph(target, opset=settings.opset, task=Task(trained.task), num_labels=shape.num_labels)
    name = f"{FP32_NAME} (fused)"
    return fused, check_parity(open_model(target), cells, atol=settings.atol, name=name)
