"""One table of a job's figures, read from the folders that its stages wrote."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.contract.bundle import FP32_NAME, INT8_NAME, load_bundle
from pipeline.contract.errors import FolderError
from pipeline.contract.folder import read_json
from pipeline.contract.shards import load_shards

_MODEL_TITLES = {"torch": "torch", FP32_NAME: "ONNX FP32", INT8_NAME: "ONNX INT8"}


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
    for name, value in quality["latency_ms"].items():
        title = f"latency {_MODEL_TITLES.get(name, name)}, {value['seq_len']} tokens"
        figures = f"{value['batch_1']:.1f} ms / {value['batch_32']:.1f} ms"
        lines.append((f"{title}, batch 1 / batch 32", figures))
    lines.append(("served model", summary["default_model"]))
    served = f"{traffic['p50_ms']:.0f} ms / {traffic['p99_ms']:.0f} ms"
    title = f"served, {traffic['num_connections']} connections, P50 / P99"
    lines.append((title, f"{served} ({traffic['requests_per_s']:.0f} requests/s)"))
    if traffic["num_correct"] is not None:
        lines.append(
            ("served answers right", f"{traffic['num_correct']} of {traffic['num_requests']}")
        )
    return lines
