"""Builds a bundle's model files from a trained model and checks each against it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pipeline.config import ExportSettings, Task
from pipeline.contract.batching import IntArray
from pipeline.contract.bundle import FP16_NAME, FP32_NAME, INT8_NAME
from pipeline.contract.errors import ExportError
from pipeline.export.external_data import remove_model, rename_model, settle_weights
from pipeline.export.finite_weights import check_no_nan
from pipeline.export.fp16 import check_fp16_parity, write_fp16
from pipeline.export.fusion import fuse_graph
from pipeline.export.fusion_choice import FUSED, UNFUSED, FusionChoice, choose_fusion
from pipeline.export.graph_checks import check_graph
from pipeline.export.int8_choice import write_int8
from pipeline.export.latency import latency_shapes
from pipeline.export.onnx_graph import as_logits_function, export_graph
from pipeline.export.onnx_session import LogitsFunction, demand_device, open_model
from pipeline.export.parity import ParityCell, ParityResult, build_parity_cells, check_parity
from pipeline.model.finite import first_not_finite
from pipeline.model.trained import TrainedModel

_PLAIN_NAME = "unfused.onnx"
_FUSED_NAME = "fused.onnx"


@dataclass(frozen=True, kw_only=True)
class BuiltModels:
    """What was written and what its checks measured."""

    names: tuple[str, ...]
    """Model files: FP32 first, then FP16, INT8."""
    cells: list[ParityCell]
    """The grid with torch's logits."""
    parity: dict[str, Any]
    """Largest difference of FP32's logits from torch's and its cell; of FP16's under ``fp16``."""
    fusion: dict[str, Any] | None
    """:meth:`FusionChoice.as_figures`; None when nothing was fused."""
    int8: dict[str, Any] | None
    """Figures of the chosen INT8 model; None when there is none."""
    notes: tuple[str, ...]
    """What was left out or decided and why, for people."""


@dataclass(frozen=True, kw_only=True)
class _Work:
    folder: Path
    trained: TrainedModel
    settings: ExportSettings
    cells: list[ParityCell]
    notes: list[str]

    def open(self, name: str) -> LogitsFunction:
        """Check what a written file declares and open it on the target."""
        check_graph(
            self.folder / name,
            opset=self.settings.opset,
            task=Task(self.trained.task),
            num_labels=self.trained.architecture.num_labels,
        )
        check_no_nan(self.folder / name)
        return open_model(self.folder / name, device=self.settings.target)


def build_models(
    folder: Path,
    trained: TrainedModel,
    *,
    settings: ExportSettings,
    seq_lens: Sequence[int],
    rows: Sequence[NDArray[np.int32]],
    seed: int,
) -> BuiltModels:
    """Write ``model.onnx`` and, as set, ``model_fp16.onnx`` and ``model_int8.onnx``.

    Args:
        folder: where the files go.
        trained: the model in eval mode.
        settings: target, opset, tolerance, fusion and INT8.
        seq_lens: lengths of the parity grid.
        rows: token ids of some validation texts, each ``[seq]``; INT8 is chosen by them.
        seed: draws the parity grid's ids and masks.

    Raises:
        ConfigError: the target cannot be used on this machine; nothing is written then.
        ExportError: a file fails a check.
    """
    demand_device(settings.target)
    cells = _build_cells(trained, seq_lens=seq_lens, seed=seed)
    work = _Work(folder=folder, trained=trained, settings=settings, cells=cells, notes=[])
    plain = _write_plain(work)
    parity = check_parity(plain, cells, atol=settings.atol, name=FP32_NAME)
    int8 = _write_int8(work, rows) if settings.int8 else None
    choice = None
    if _is_fusible(work):
        choice, fused_parity = _choose_graph(work, plain)
        parity = fused_parity if choice.kept == FUSED else parity
    else:
        rename_model(folder / _PLAIN_NAME, folder / FP32_NAME)
    figures, names = parity.as_figures(), [FP32_NAME]
    if settings.target == "cuda":
        figures["fp16"] = _write_fp16(work).as_figures()
        names.append(FP16_NAME)
    return BuiltModels(
        names=(*names, *([INT8_NAME] if int8 is not None else [])),
        cells=cells,
        parity=figures,
        fusion=choice.as_figures() if choice is not None else None,
        int8=int8,
        notes=tuple(work.notes),
    )


def modules_outside_encoder(model: nn.Module) -> list[str]:
    """Return the names of a model's parts with weights, the encoder left out.

    Example: ``["embeddings", "pooler", "classifier"]``.
    """
    return [
        name
        for name, child in model.named_children()
        if name != "encoder" and next(child.parameters(), None) is not None
    ]


def _build_cells(trained: TrainedModel, *, seq_lens: Sequence[int], seed: int) -> list[ParityCell]:
    return build_parity_cells(
        _finite_logits(trained.model),
        seq_lens=seq_lens,
        vocab_size=trained.architecture.vocab_size,
        seed=seed,
        sep_token_id=trained.architecture.sep_token_id,
    )


def _finite_logits(model: nn.Module) -> LogitsFunction:
    run = as_logits_function(model)

    def checked(input_ids: IntArray, attention_mask: IntArray) -> NDArray[np.float32]:
        logits = run(input_ids, attention_mask)
        if not np.isfinite(logits).all():
            arrays = (torch.from_numpy(input_ids), torch.from_numpy(attention_mask))
            raise ExportError(
                f"the model's own logits are not finite in torch, at [batch, seq] "
                f"{list(input_ids.shape)}",
                place=f"output of {first_not_finite(model, *arrays) or 'the model'}",
                remedy="Numbers overflow there: train again with a lower train.base_lr or more "
                "train.weight_decay.",
            )
        return logits

    return checked


def _write_plain(work: _Work) -> LogitsFunction:
    export_graph(
        work.trained.model,
        work.folder / _PLAIN_NAME,
        opset=work.settings.opset,
        task=Task(work.trained.task),
        num_labels=work.trained.architecture.num_labels,
        external_data_mb=work.settings.external_data_mb,
    )
    return work.open(_PLAIN_NAME)


def _write_int8(work: _Work, rows: Sequence[NDArray[np.int32]]) -> dict[str, Any] | None:
    trained, settings, target = work.trained, work.settings, work.folder / INT8_NAME
    is_known = trained.architecture.factory is None
    figures = write_int8(
        work.folder / _PLAIN_NAME,
        target,
        keep_float=modules_outside_encoder(trained.model) if is_known else None,
        extra_keep_float=settings.keep_float,
        activations=settings.int8_activations,
        rows=rows,
        pad_token_id=trained.encoder.pad_token_id,
    )
    if figures is None:
        work.notes.append("no INT8 model: no matrix product but those kept float")
        return None
    settle_weights(target, external_data_mb=settings.external_data_mb)
    work.open(INT8_NAME)
    return figures


def _is_fusible(work: _Work) -> bool:
    is_known = work.trained.architecture.factory is None
    if work.settings.fuse and not is_known:
        work.notes.append("not fused: what a model of model.factory must contain is not known")
    return work.settings.fuse and is_known


def _choose_graph(work: _Work, plain: LogitsFunction) -> tuple[FusionChoice, ParityResult]:
    shape, settings, folder = work.trained.architecture, work.settings, work.folder
    counts = fuse_graph(
        folder / _PLAIN_NAME,
        folder / _FUSED_NAME,
        architecture=shape,
        device=settings.target,
        external_data_mb=settings.external_data_mb,
    )
    fused = work.open(_FUSED_NAME)
    name = f"{FP32_NAME} (fused)"
    parity = check_parity(fused, work.cells, atol=settings.atol, name=name)
    choice = choose_fusion(
        {FUSED: fused, UNFUSED: plain},
        latency_shapes(work.trained.text_settings.max_seq_len),
        counts=counts,
        vocab_size=shape.vocab_size,
    )
    kept, dropped = _PLAIN_NAME, _FUSED_NAME
    if choice.kept == FUSED:
        kept, dropped = dropped, kept
    rename_model(folder / kept, folder / FP32_NAME)
    remove_model(folder / dropped)
    return choice, parity


def _write_fp16(work: _Work) -> ParityResult:
    target = work.folder / FP16_NAME
    write_fp16(work.folder / FP32_NAME, target, external_data_mb=work.settings.external_data_mb)
    return check_fp16_parity(work.open(FP16_NAME), work.cells, name=FP16_NAME)
