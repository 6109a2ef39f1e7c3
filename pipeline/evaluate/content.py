"""What the report shows, put together from the metrics and the stages' manifests."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from pipeline.config import JobConfig
from pipeline.contract.shards import Shards
from pipeline.drawing import Chart
from pipeline.evaluate.charts import draw_buckets, draw_calibration, draw_lengths, draw_padding
from pipeline.evaluate.confusion_chart import draw_confusion
from pipeline.evaluate.label_chart import draw_label_errors
from pipeline.evaluate.report import ReportContent, answer_unit
from pipeline.evaluate.training_charts import (
    draw_loss,
    draw_memory,
    draw_optimisation,
    draw_speed,
    draw_validation,
)
from pipeline.evaluate.training_log import Row, TrainingLog, figure_name
from pipeline.quality import accuracy_name

Pairs = list[tuple[str, str]]


def build_content(
    job: JobConfig,
    *,
    metrics: dict[str, Any],
    shards: Shards,
    checkpoint: Mapping[str, Any],
    log: TrainingLog,
    versions: Mapping[str, str],
) -> ReportContent:
    """Return the page's content.

    Args:
        job: the job; its settings are listed.
        metrics: as in metrics.json.
        shards: what was trained and tested on.
        checkpoint: manifest of the checkpoint folder.
        log: what training wrote down.
        versions: package → version of this process.
    """
    return ReportContent(
        name=job.name,
        metrics=metrics,
        quality_charts=_draw_quality(metrics, shards.labels),
        training_charts=_draw_training(metrics, log),
        data_charts=[
            draw_lengths(shards.split("train").lengths, shards.bucket_edges),
            draw_padding(shards.manifest["padding"]),
        ],
        events=[_describe_event(event) for event in log.events],
        passed_over=[
            f"{count:,} {'line' if count == 1 else 'lines'} of {name}"
            for name, count in log.passed_over.items()
        ],
        data=_describe_data(shards.manifest),
        origin=_describe_origin(metrics["checkpoint"], checkpoint, shards.manifest, versions),
        settings=_flatten(job.model_dump(mode="json")),
    )


def _draw_quality(metrics: dict[str, Any], labels: Sequence[str]) -> list[Chart]:
    is_multi_label = metrics["confusion"] is None
    if is_multi_label:
        charts = [draw_label_errors(metrics["per_class"])]
    else:
        charts = [draw_confusion(np.array(metrics["confusion"], dtype=np.int64), labels)]
    measure = accuracy_name(metrics["task"])
    charts.append(draw_buckets(metrics["per_bucket"], metrics["accuracy"], measure=measure))
    if metrics["calibration"]:
        unit = "labels given" if is_multi_label else answer_unit(metrics)
        error = metrics["calibration_error"]
        charts.append(draw_calibration(metrics["calibration"], error, unit=unit))
    return charts


def _draw_training(metrics: dict[str, Any], log: TrainingLog) -> list[Chart]:
    if not log.steps:
        return []
    measure = accuracy_name(metrics["task"])
    best_by = figure_name(metrics["checkpoint"]["best_metric"], measure=measure)
    charts = [draw_loss(log.steps, log.validations, best_by=best_by)]
    if log.validations:
        charts.append(draw_validation(log.validations, measure=measure, best_by=best_by))
    return [*charts, draw_optimisation(log.steps), draw_speed(log.steps), draw_memory(log.steps)]


def _describe_event(event: Row) -> tuple[str, str, str, str]:
    when = datetime.fromtimestamp(event["time_s"], tz=UTC)
    kind = str(event["kind"]).replace("_", " ")
    return f"{event['step']:,}", f"{when:%Y-%m-%d %H:%M:%S}", kind, str(event["message"])


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
