"""Repeats a bundle's checks on any machine, as serving will find it; no torch.

What torch said stands in the bundle (:mod:`pipeline.export.reference`).
"""

from collections.abc import Sequence
from pathlib import Path

import onnxruntime

from pipeline.config import Task
from pipeline.contract.bundle import FP16_NAME, FP32_NAME, INT8_NAME, Bundle, load_bundle
from pipeline.contract.errors import ExportError
from pipeline.contract.folder import MANIFEST_NAME
from pipeline.contract.tokenization import TextEncoder
from pipeline.export.cpu_flags import saturation_warning
from pipeline.export.external_data import load_graph
from pipeline.export.finite_weights import check_no_nan
from pipeline.export.fusion import demand_fusions
from pipeline.export.graph_checks import check_graph
from pipeline.export.int8_weights import check_int8_weights
from pipeline.export.onnx_session import CUDA_PROVIDER, Device, LogitsFunction, open_model
from pipeline.export.recorded_figures import read_figure, read_number
from pipeline.export.reference import read_reference
from pipeline.export.run_checks import check_against_torch, check_finite, check_shift
from pipeline.export.shards_check import check_on_shards


def verify(bundle_dir: Path, *, shards_dir: Path | None = None) -> list[str]:
    """Check a bundle and return one line for each thing that was checked.

    A line that begins with ``warning:`` is no failure.

    Args:
        bundle_dir: the bundle's folder.
        shards_dir: the shards that it was made from; with them the accuracies that the INT8
            gate judged and the batch shift of the validation texts are measured again.

    Raises:
        FolderError: (or a subtype) the folder is no bundle, a byte was changed, a file is
            missing, another schema wrote it, the tokenizer is not that of training, or the
            shards are not the bundle's.
        ExportError: a model's graph, weights, logits or accuracy are not what the manifest
            says.
    """
    bundle = load_bundle(bundle_dir)
    manifest = bundle.manifest
    lines = [f"{len(manifest.files)} files have the sha256 of the manifest ({bundle.version})"]
    lines += _find_strangers(bundle)
    encoder = _load_encoder(bundle)
    lines.append("the tokenizer gives the ids of training")
    names = bundle.model_names
    if FP32_NAME not in names:
        raise ExportError(
            f"the bundle has no {FP32_NAME}", place=str(bundle_dir), value=list(names)
        )
    lines += _check_graphs(bundle, names)
    device = _choose_device(manifest.target)
    runs: dict[str, LogitsFunction] = {}
    for name in names:
        if name == FP16_NAME and device == "cpu":
            lines.append(f"{name}: not run, it is for CUDA and there is none here")
        else:
            runs[name] = open_model(bundle.model_path(name), device=device)
    lines += _check_runs(bundle, runs, vocab_size=encoder.vocab_size)
    if shards_dir is not None:
        lines += check_on_shards(runs, manifest, shards_dir=shards_dir)
    if INT8_NAME in names:
        warning = saturation_warning(read_figure(manifest, "int8"))
        lines += [warning] if warning else []
    lines.append(f"the default model is {manifest.default_model}")
    return lines


def _find_strangers(bundle: Bundle) -> list[str]:
    there = {
        path.relative_to(bundle.folder).as_posix()
        for path in bundle.folder.rglob("*")
        if path.is_file() or path.is_symlink()
    }
    strangers = sorted(there - {MANIFEST_NAME, *bundle.manifest.files})
    if not strangers:
        return []
    return [f"warning: not named by the manifest, and never read: {', '.join(strangers)}"]


def _load_encoder(bundle: Bundle) -> TextEncoder:
    encoder = bundle.load_text_encoder()
    if encoder.pad_token_id != bundle.manifest.pad_token_id:
        raise ExportError(
            f"the tokenizer pads with {encoder.pad_token_id}",
            place=str(bundle.folder),
            value=bundle.manifest.pad_token_id,
        )
    return encoder


def _choose_device(target: Device) -> Device:
    has_cuda = CUDA_PROVIDER in onnxruntime.get_available_providers()
    return "cuda" if target == "cuda" and has_cuda else "cpu"


def _check_graphs(bundle: Bundle, names: Sequence[str]) -> list[str]:
    manifest, lines = bundle.manifest, []
    task, num_labels = Task(manifest.task), len(manifest.labels)
    for name in names:
        path = bundle.model_path(name)
        check_graph(path, opset=manifest.opset, task=task, num_labels=num_labels)
        check_no_nan(path)
        lines.append(f"{name}: opset {manifest.opset}, dynamic axes batch and seq")
    fusion = read_figure(manifest, "fusion")
    if fusion is not None and read_figure(manifest, "fusion", "kept") == "fused":
        lines.append(_check_fusion(bundle))
    if INT8_NAME in names:
        int8, kept = (read_figure(manifest, "int8", key) for key in ("int8", "kept_float"))
        check_int8_weights(bundle.model_path(INT8_NAME), int8=int8, kept_float=kept)
        lines.append(f"{INT8_NAME}: {len(int8)} weights are INT8, {len(kept)} FLOAT, as written")
    return lines


def _check_fusion(bundle: Bundle) -> str:
    recorded = read_figure(bundle.manifest, "fusion", "counts")
    path = bundle.model_path(FP32_NAME)
    # Every layer has one Attention, so that is how many layers there are.
    layers = int(read_number(bundle.manifest, "fusion", "counts", "Attention"))
    counts = demand_fusions(
        load_graph(path).graph, num_layers=layers, device=bundle.manifest.target, place=path.name
    )
    if counts != recorded:
        raise ExportError(f"the fused operators must be {recorded}", place=path.name, value=counts)
    return f"{FP32_NAME}: fused " + ", ".join(f"{n} {name}" for name, n in counts.items())


def _check_runs(bundle: Bundle, runs: dict[str, LogitsFunction], *, vocab_size: int) -> list[str]:
    manifest, cells, lines = bundle.manifest, read_reference(bundle.folder), []
    for name, run in runs.items():
        lines += [
            check_finite(run, manifest, vocab_size=vocab_size, name=name),
            check_against_torch(run, cells, manifest, name=name),
            check_shift(run, cells, manifest, name=name),
        ]
    return lines
