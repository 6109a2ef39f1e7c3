"""What the report shows, put together from the metrics and the stages' manifests."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.config import JobConfig
from pipeline.contract.shards import Shards
from pipeline.drawing import Chart
from pipeline.evaluate.charts import (
    draw_buckets,
    draw_confusion,
    draw_lengths,
    draw_loss,
    draw_padding,
    draw_throughput,
)
from pipeline.evaluate.label_chart import draw_label_errors
from pipeline.evaluate.report import ReportContent
from pipeline.quality import accuracy_name

Pairs = list[tuple[str, str]]


def build_content(
    job: JobConfig,
    *,
    metrics: dict[str, Any],
    shards: Shards,
    checkpoint: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    versions: Mapping[str, str],
) -> ReportContent:
    """Return the page's content.

    Args:
        job: the job; its settings are listed.
        metrics: as in metrics.json.
        shards: what was trained and tested on.
        checkpoint: manifest of the checkpoint folder.
        history: rows of :func:`pipeline.evaluate.history.read_history`.
        versions: package → version of this process.
    """
    return ReportContent(
        name=job.name,
        metrics=metrics,
        charts=_build_charts(metrics, shards, history),
        data=_describe_data(shards.manifest),
        origin=_describe_origin(metrics["checkpoint"], checkpoint, shards.manifest, versions),
        settings=_flatten(job.model_dump(mode="json")),
    )


def _build_charts(
    metrics: dict[str, Any], shards: Shards, history: Sequence[Mapping[str, Any]]
) -> list[Chart]:
    measure = accuracy_name(metrics["task"])
    charts = [
        _draw_labels(metrics, shards.labels),
        draw_buckets(metrics["per_bucket"], metrics["accuracy"], measure=measure),
        draw_lengths(shards.split("train").lengths, shards.bucket_edges),
        draw_padding(shards.manifest["padding"]),
    ]
    if history:
        charts += [draw_loss(history), draw_throughput(history)]
    return charts


def _draw_labels(metrics: dict[str, Any], labels: Sequence[str]) -> Chart:
    if metrics["confusion"] is None:
        return draw_label_errors(metrics["per_class"])
    return draw_confusion(np.array(metrics["confusion"], dtype=np.int64), labels)


def _describe_data(manifest: Mapping[str, Any]) -> Pairs:
    rows, splits = manifest["rows"], manifest["splits"]
    pairs = [
        ("rows read", f"{rows['read']:,}"),
        ("kept", f"{rows['kept']:,}"),
        ("left out by the sample", f"{rows['not_sampled']:,}"),
        ("rejected", f"{rows['rejected']:,}"),
    ]
    reasons = sorted(rows["rejected_by_reason"].items())
    pairs += [(f"rejected: {reason}", f"{count:,}") for reason, count in reasons]
    limit = manifest["text_settings"]["max_seq_len"]
    pairs.append((f"cut to {limit} tokens", f"{rows['truncated']:,}"))
    for name, split in splits.items():
        pairs.append((name, f"{split['rows']:,} rows, {split['tokens']:,} tokens"))
    return pairs


def _describe_origin(
    tested: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    manifest: Mapping[str, Any],
    versions: Mapping[str, str],
) -> Pairs:
    architecture = checkpoint["architecture"]
    shape = ", ".join(f"{key} {value}" for key, value in architecture.items())
    pairs = [
        ("shards", manifest["fingerprint"]),
        ("tokenizer and text settings", manifest["text_fingerprint"]),
        ("checkpoint file", tested["file"]),
        ("its sha256", tested["sha256"]),
        ("training", checkpoint["fingerprint"]),
        ("steps", f"{checkpoint['total_steps']:,}"),
        ("model", shape),
    ]
    for stage, named in (
        ("prepared", manifest.get("versions", {})),
        ("trained", checkpoint.get("versions", {})),
        ("evaluated", versions),
    ):
        shown = [f"{name} {number}" for name, number in named.items() if number]
        pairs.append((f"{stage} with", ", ".join(shown)))
    return [(what, str(value)) for what, value in pairs]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Pairs:
    pairs: Pairs = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            pairs += _flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", json.dumps(value, ensure_ascii=False)))
    return pairs
