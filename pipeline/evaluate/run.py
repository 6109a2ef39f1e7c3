"""The evaluate stage: checkpoint and test rows → metrics.json and report.html."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pipeline.config import JobConfig, Task
from pipeline.contract.batching import IntArray
from pipeline.contract.disk import explain_full_disk
from pipeline.contract.errors import DataError, FolderError
from pipeline.contract.folder import (
    atomic_folder,
    fingerprint,
    hash_files,
    read_manifest,
    verify_files,
    write_manifest,
)
from pipeline.contract.shards import Shards, ShardSplit, load_shards
from pipeline.evaluate.baseline import BASELINE_NAME, predict_baseline
from pipeline.evaluate.content import build_content
from pipeline.evaluate.judged import Judged
from pipeline.evaluate.measure import (
    compare_with_baseline,
    measure_buckets,
    measure_entities,
    measure_quality,
    tags_of_rows,
)
from pipeline.evaluate.mistakes import find_mistakes
from pipeline.evaluate.report import render_report
from pipeline.evaluate.scored_positions import Scored, score_positions
from pipeline.evaluate.scored_sets import score_sets
from pipeline.evaluate.training_log import FIGURES, Row, TrainingLog, read_training_log
from pipeline.model.checkpoint_manifest import chosen_entry, read_checkpoint_manifest
from pipeline.model.trained import TrainedModel, load_trained
from pipeline.quality import FloatArray, accuracy_name, predict_split
from pipeline.stage import StageResult, is_done

REPORT_SCHEMA_VERSION = 3
METRICS_NAME = "metrics.json"
REPORT_NAME = "report.html"
_SPLIT = "test"


def evaluate(job: JobConfig, *, force: bool = False) -> StageResult:
    """Measure the job's checkpoint on the test rows and write the report folder.

    Raises:
        FolderError: shards or checkpoint are missing, altered or do not belong together.
        DataError: there are no test rows.
        ConfigError: the baseline is asked for and scikit-learn is not installed.
    """
    checkpoint, shards = read_checkpoint_manifest(job.checkpoint_dir), load_shards(job.shards_dir)
    _check_pair(job.checkpoint_dir, checkpoint, shards)
    wanted = {
        "report_schema": REPORT_SCHEMA_VERSION,
        "weights": _name_weights(checkpoint),
        "shards": shards.fingerprint,
        # The page shows every setting.
        "job": job.model_dump(mode="json"),
    }
    key = fingerprint(wanted)
    if not force and is_done(job.report_dir, key) and _is_intact(job.report_dir):
        metrics = json.loads((job.report_dir / METRICS_NAME).read_text(encoding="utf-8"))
        return StageResult(folder=job.report_dir, is_reused=True, summary=_summarise(metrics))
    with Console(stderr=True).status("measuring the test rows"):
        trained, log = load_trained(job.checkpoint_dir), read_training_log(job.checkpoint_dir)
        weights = _describe_weights(trained, log)
        metrics = {**_measure(job, shards, trained), "checkpoint": weights}
    content = build_content(
        job,
        metrics=metrics,
        shards=shards,
        checkpoint=checkpoint,
        log=log,
        versions=_versions(),
    )
    needs = "the report needs a few megabytes"
    with explain_full_disk(job.report_dir, needs=needs), atomic_folder(job.report_dir) as folder:
        text = json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"
        (folder / METRICS_NAME).write_text(text, encoding="utf-8")
        (folder / REPORT_NAME).write_text(render_report(content), encoding="utf-8")
        manifest = {"schema_version": REPORT_SCHEMA_VERSION, "fingerprint": key}
        write_manifest(folder, {**manifest, "files": hash_files(folder)})
    return StageResult(folder=job.report_dir, is_reused=False, summary=_summarise(metrics))


def _check_pair(folder: Path, checkpoint: dict[str, Any], shards: Shards) -> None:
    if "best_metric" not in checkpoint:
        raise FolderError(
            "the manifest lacks best_metric", place=str(folder), remedy="Run `textlane train`."
        )
    if checkpoint["shards_fingerprint"] != shards.fingerprint:
        # Other shards split the rows otherwise: test rows may have been trained on.
        raise FolderError(
            "the checkpoint was trained on other shards than these",
            place=str(shards.folder),
            value=checkpoint["shards_fingerprint"],
            remedy="Run `textlane train` again.",
        )


def _name_weights(checkpoint: dict[str, Any]) -> dict[str, Any] | None:
    # None for an unfinished training, which load_trained() refuses. The page says step and kind.
    entry = chosen_entry(checkpoint)
    return {**entry, "best_metric": checkpoint["best_metric"]} if entry else None


def _is_intact(folder: Path) -> bool:
    try:
        verify_files(folder, read_manifest(folder)["files"])
    except FolderError:
        return False
    return True


def _measure(job: JobConfig, shards: Shards, trained: TrainedModel) -> dict[str, Any]:
    split = shards.split(_SPLIT)
    if not len(split):
        raise DataError(
            "there are no test rows", place=str(shards.folder), remedy="Raise data.test_share."
        )
    logits = _predict(job, trained, shards)
    is_token_task = job.task is Task.TOKEN
    scored, baseline = _judge(job, shards, split, logits)
    tags = tags_of_rows(split, logits, shards.labels) if is_token_task else None
    return {
        "task": shards.task,
        "split": _SPLIT,
        "rows": len(split),
        **measure_quality(scored, shards.labels),
        "confusion": scored.confusion.tolist() if isinstance(scored, Scored) else None,
        "baseline": baseline,
        "per_bucket": measure_buckets(scored, split.lengths, shards.bucket_edges, tags=tags),
        "entity_f1": measure_entities(tags) if tags else None,
        "mistakes": find_mistakes(
            split,
            scored,
            labels=shards.labels,
            encoder=trained.encoder,
            is_token_task=is_token_task,
        ),
    }


def _judge(
    job: JobConfig, shards: Shards, split: ShardSplit, logits: list[FloatArray]
) -> tuple[Judged, dict[str, Any] | None]:
    """Return the answers and how the baseline's differ, None without one."""
    num_labels = len(shards.labels)
    if job.task is Task.MULTI_LABEL:
        return score_sets(split, logits, num_labels=num_labels), None
    scored = score_positions(split, logits)
    if not job.evaluate.baseline:
        return scored, None
    predicted = predict_baseline(shards)
    return scored, compare_with_baseline(
        scored, predicted, name=BASELINE_NAME, num_labels=num_labels
    )


def _describe_weights(trained: TrainedModel, log: TrainingLog) -> Row:
    """Return which of the training's weights were measured, and how good validation found them."""
    name = trained.checkpoint_file.name
    entry = next(each for each in trained.manifest["checkpoints"] if each["file"] == name)
    found = [row for row in log.validations if row["step"] == entry["step"]]
    return {
        "file": name,
        "sha256": trained.checkpoint_sha256,
        "step": entry["step"],
        "total_steps": trained.manifest["total_steps"],
        "kind": entry["kind"],
        "is_best": entry.get("is_best", False),
        "best_metric": trained.manifest["best_metric"],
        "validation": {figure: found[0][figure] for figure in FIGURES} if found else None,
    }


def _predict(job: JobConfig, trained: TrainedModel, shards: Shards) -> list[FloatArray]:
    # This runs where the command does, which need not be the machine with the GPUs.
    has_gpu = job.ray.use_gpu and torch.cuda.is_available()
    device = torch.device("cuda" if has_gpu else "cpu")
    model = trained.model.to(device)

    def run(input_ids: IntArray, attention_mask: IntArray) -> FloatArray:
        with torch.inference_mode():
            logits = model(
                torch.from_numpy(input_ids).to(device), torch.from_numpy(attention_mask).to(device)
            )
        array: FloatArray = logits.float().cpu().numpy()
        return array

    return predict_split(
        shards.split(_SPLIT),
        run,
        batch_rows=job.evaluate.batch_rows,
        pad_token_id=trained.encoder.pad_token_id,
        task=shards.task,
    )


def _versions() -> dict[str, str]:
    packages = ("torch", "numpy", "tokenizers", "matplotlib")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _summarise(metrics: dict[str, Any]) -> str:
    measure = accuracy_name(metrics["task"])
    text = f"{measure} {metrics['accuracy']:.1%} on {metrics['rows']:,} test rows"
    if metrics["micro_f1"] is not None:
        text += f", micro F1 {metrics['micro_f1']:.1%}"
    if metrics["entity_f1"] is not None:
        text += f", entity F1 {metrics['entity_f1']['f1']:.1%}"
    if metrics["baseline"] is not None:
        text += f", {metrics['baseline']['name']} {metrics['baseline']['accuracy']:.1%}"
    return text
