"""One table of a job's figures, read from the folders that its stages wrote."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.contract.bundle import FP16_NAME, FP32_NAME, INT8_NAME, load_bundle
from pipeline.contract.errors import FolderError
from pipeline.contract.folder import read_json
from pipeline.contract.shards import load_shards

_MODEL_TITLES = {
    "torch": "torch",
    FP32_NAME: "ONNX FP32",
    FP16_NAME: "ONNX FP16",
    INT8_NAME: "ONNX INT8",
}
_SHOWN_TOKENS = 64
"""A text of some sentences; the table shows one length only."""


def build_summary(output_dir: Path, traffic: dict[str, Any]) -> dict[str, Any]:
    """Return rows, padding, quality, sizes, latencies and traffic of one finished job.

    Raises:
        FolderError: a folder of the job is missing or damaged.
    """
    shards = load_shards(output_dir / "shards", verify=False).manifest
    metrics = read_json(output_dir / "report" / "metrics.json")
    bundle = load_bundle(output_dir / "bundle")
    if not isinstance(metrics, dict):
        raise FolderError("metrics.json is not an object", place=str(output_dir / "report"))
    return {
        "rows": {key: shards["rows"][key] for key in ("read", "kept", "rejected", "not_sampled")},
        "splits": {name: split["rows"] for name, split in shards["splits"].items()},
        "padding": shards["padding"],
        "baseline": metrics.get("baseline"),
        "torch_accuracy": metrics["accuracy"],
        "quality": bundle.manifest.quality,
        "default_model": bundle.manifest.default_model,
        "traffic": traffic,
        "report": str(output_dir / "report" / "report.html"),
        "bundle": str(output_dir / "bundle"),
    }


def render_summary(summary: dict[str, Any], console: Console) -> None:
    """Print the table and where to look next."""
    table = Table("what", "figure", title="Summary", title_justify="left")
    for what, figure in _lines(summary):
        table.add_row(what, figure)
    console.print(table)
    console.print(f"Open {summary['report']}", soft_wrap=True, markup=False, highlight=False)


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    rows, splits, padding = summary["rows"], summary["splits"], summary["padding"]
    quality, traffic, baseline = summary["quality"], summary["traffic"], summary["baseline"]
    lines = [
        (
            "rows read / kept / rejected / not sampled",
            " / ".join(f"{rows[key]:,}" for key in ("read", "kept", "rejected", "not_sampled")),
        ),
        ("rows train / validation / test", " / ".join(f"{n:,}" for n in splits.values())),
        (
            "padding share random / buckets / buckets + window",
            " / ".join(f"{padding[k]:.1%}" for k in ("random", "buckets", "buckets_window")),
        ),
    ]
    if baseline:
        lines.append((f"test accuracy {baseline['name']}", f"{baseline['accuracy']:.2%}"))
    accuracies = {"torch": summary["torch_accuracy"], **quality["accuracy"]}
    for name, value in accuracies.items():
        lines.append((f"test accuracy {_MODEL_TITLES.get(name, name)}", f"{value:.2%}"))
    for name, value in quality["size_bytes"].items():
        lines.append((f"size {_MODEL_TITLES.get(name, name)}", f"{value / 1e6:.1f} MB"))
    for name, by_shape in quality["latency_ms"].items():
        lines.append(_latency_line(_MODEL_TITLES.get(name, name), by_shape))
    lines.append(("served model", summary["default_model"]))
    served = f"{traffic['p50_ms']:.0f} ms / {traffic['p99_ms']:.0f} ms"
    title = f"served, {traffic['num_connections']} connections, P50 / P99"
    lines.append((title, f"{served} ({traffic['requests_per_s']:.0f} requests/s)"))
    if traffic["num_correct"] is not None:
        lines.append(
            ("served answers right", f"{traffic['num_correct']} of {traffic['num_requests']}")
        )
    return lines


def _latency_line(title: str, by_shape: dict[str, float]) -> tuple[str, str]:
    """Return the medians at the measured length nearest to 64 tokens, by batch size.

    Args:
        title: the model's name.
        by_shape: median milliseconds by batch and tokens, such as ``{"1x16": 2.9}``.
    """
    shapes = [tuple(int(part) for part in shape.split("x")) for shape in by_shape]
    nearest = min((seq for _, seq in shapes), key=lambda seq: (abs(seq - _SHOWN_TOKENS), seq))
    batches = sorted(batch for batch, seq in shapes if seq == nearest)
    what = " / ".join(f"batch {batch}" for batch in batches)
    figures = " / ".join(f"{by_shape[f'{batch}x{nearest}']:.1f} ms" for batch in batches)
    return f"latency {title}, {nearest} tokens, {what}", figures
