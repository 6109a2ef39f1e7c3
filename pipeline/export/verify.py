"""Verifies a bundle as serving will find it: bytes, tokenizer, graphs and real runs; no torch."""

from pathlib import Path

import numpy as np

from pipeline.config import Task
from pipeline.contract.bundle import FP32_NAME, Bundle, load_bundle
from pipeline.contract.errors import ExportError
from pipeline.contract.tokenization import TextEncoder
from pipeline.export.graph_checks import check_graph
from pipeline.export.onnx_session import LogitsFunction, open_model
from pipeline.export.parity import GRID_BATCH_SIZES

_BATCH_SEQ_LEN = 16


def verify(bundle_dir: Path) -> list[str]:
    """Check a bundle and return one line for each thing that was checked.

    Raises:
        FolderError: (or a subtype) the folder is no bundle, a byte was changed, a file is
            missing, a newer schema wrote it, or the tokenizer is not that of training.
        ExportError: a model's opset, axes or answers are not what the manifest says.
    """
    bundle = load_bundle(bundle_dir)
    manifest = bundle.manifest
    lines = [f"{len(manifest.files)} files have the sha256 of the manifest ({bundle.version})"]
    encoder = bundle.load_text_encoder()
    if encoder.pad_token_id != manifest.pad_token_id:
        raise ExportError(
            f"the tokenizer pads with {encoder.pad_token_id}",
            place=str(bundle_dir),
            value=manifest.pad_token_id,
        )
    lines.append("the tokenizer gives the ids of training")
    models = [name for name in manifest.files if name.endswith(".onnx")]
    if FP32_NAME not in models:
        raise ExportError(f"the bundle has no {FP32_NAME}", place=str(bundle_dir), value=models)
    for name in models:
        lines += _verify_model(bundle, name, encoder)
    lines.append(f"the default model is {manifest.default_model}")
    return lines


def _verify_model(bundle: Bundle, name: str, encoder: TextEncoder) -> list[str]:
    manifest = bundle.manifest
    task, num_labels = Task(manifest.task), len(manifest.labels)
    path = bundle.model_path(name)
    check_graph(path, opset=manifest.opset, task=task, num_labels=num_labels)
    run = open_model(path)
    shapes = [(batch, min(_BATCH_SEQ_LEN, manifest.max_seq_len)) for batch in GRID_BATCH_SIZES]
    shapes.append((1, manifest.max_seq_len))
    for shape in shapes:
        expected = (*(shape if task is Task.TOKEN else shape[:1]), num_labels)
        _check_run(run, shape=shape, expected=expected, encoder=encoder, name=name)
    return [
        f"{name}: opset {manifest.opset}, dynamic axes batch and seq",
        f"{name}: finite logits for [batch, seq] of "
        + ", ".join(f"[{batch}, {seq}]" for batch, seq in shapes),
    ]


def _check_run(
    run: LogitsFunction,
    *,
    shape: tuple[int, int],
    expected: tuple[int, ...],
    encoder: TextEncoder,
    name: str,
) -> None:
    # The highest id is among them: a graph with a smaller table would fail on it.
    input_ids = np.arange(encoder.vocab_size - 1, -1, -1, dtype=np.int64)
    input_ids = np.resize(input_ids, shape)
    try:
        logits = run(input_ids, np.ones(shape, dtype=np.int64))
    except Exception as error:  # onnxruntime's types share no base but Exception
        raise ExportError(
            f"the model run failed: {error}", place=name, value=list(shape)
        ) from error
    if logits.shape != expected:
        raise ExportError(f"logits must have the shape {expected}", place=name, value=logits.shape)
    if not np.isfinite(logits).all():
        raise ExportError("the logits are not all finite", place=name, value=list(shape))
