"""Figures of the bundle's models on real shards, with models of known answers."""

from pathlib import Path

import export_samples
import numpy as np
import pytest
from export_samples import LABELS, write_job_folders

from pipeline.config import ExportSettings, Task
from pipeline.contract.errors import DataError, ExportError
from pipeline.contract.shards import ShardSplit, load_shards
from pipeline.export.figures import (
    ScoreSettings,
    file_sizes,
    judge_int8,
    length_percentiles,
    measure_shifts,
    spread_rows,
)
from pipeline.export.gate import Outcome
from pipeline.export.run import export


def give(label, *, task=Task.SEQUENCE, flips_at=()):
    """Return a model that gives one label everywhere, the next one at these lengths."""

    def run(input_ids, mask):
        shape = input_ids.shape if task is Task.TOKEN else input_ids.shape[:1]
        flips = np.isin(mask.sum(axis=1), flips_at)
        flips = np.broadcast_to(flips[:, None], shape) if task is Task.TOKEN else flips
        labels = np.where(flips, (label + 1) % len(LABELS), label)
        return (2 * np.eye(len(LABELS))[labels] - 1).astype(np.float32)

    return run


def judge(split, fp32, int8, *, task=Task.SEQUENCE, **settings):
    return judge_int8(
        {"model.onnx": fp32, "model_int8.onnx": int8},
        split,
        ScoreSettings(
            task=task,
            num_labels=len(LABELS),
            pad_token_id=0,
            batch_rows=8,
            **{"labels": LABELS, "bucket_edges": (8, 24), **settings},
        ),
        ExportSettings(max_accuracy_drop=1.0, max_macro_f1_drop=1.0, gate_resamples=100),
    )


@pytest.fixture(scope="module", params=[Task.SEQUENCE, Task.TOKEN, Task.MULTI_LABEL])
def split(request, tmp_path_factory) -> tuple[Task, ShardSplit]:
    job = write_job_folders(tmp_path_factory.mktemp("job"), request.param)
    return request.param, load_shards(job.shards_dir).split("validation")


def test_every_task_is_judged_with_its_flips_where_they_are(split):
    task, rows = split
    lengths = rows.lengths
    length = int(lengths[lengths > 8][0])
    is_hit = lengths == length
    flips = int(lengths[is_hit].sum()) if task is Task.TOKEN else int(is_hit.sum())

    gate = judge(rows, give(0, task=task), give(0, task=task, flips_at=[length]), task=task)

    if task is Task.TOKEN:
        assert gate.counted == "words"
        assert gate.changes.decisions == lengths.sum()
    assert gate.texts == 40
    assert gate.outcome is Outcome.PASSED
    assert gate.changes.flips == flips
    by_bucket = {part.name: part.flips for part in gate.changes.by_bucket}
    assert by_bucket == {"1-8": 0, "9-24": flips}
    by_class = {part.name: part.flips for part in gate.changes.by_class}
    assert by_class == {"bad": flips, "good": flips, "odd": 0}
    assert gate.worst_bucket.name == "9-24"


def test_the_same_answers_lose_nothing_and_repeat(split):
    task, rows = split

    gate = judge(rows, give(1, task=task), give(1, task=task), task=task)

    assert (gate.changes.flips, gate.changes.losses, gate.changes.gains) == (0, 0, 0)
    assert (gate.drops.accuracy.low, gate.drops.accuracy.high) == (0.0, 0.0)
    assert gate == judge(rows, give(1, task=task), give(1, task=task), task=task)


def test_without_names_and_edges_numbers_and_one_bucket_stand_for_them(split):
    task, rows = split

    gate = judge(
        rows, give(0, task=task), give(1, task=task), task=task, labels=(), bucket_edges=()
    )

    assert {part.name for part in gate.changes.by_class} == {"0", "1", "2"}
    assert [part.name for part in gate.changes.by_bucket] == [f"1-{rows.lengths.max()}"]


def test_there_is_nothing_to_judge_without_int8_and_nan_is_refused(split):
    task, rows = split
    settings = ScoreSettings(task=task, num_labels=3, pad_token_id=0, batch_rows=8)

    only = {"model.onnx": give(0, task=task)}
    assert judge_int8(only, rows, settings, ExportSettings()) is None

    def broken(input_ids, mask):
        return give(0, task=task)(input_ids, mask) * np.float32("nan")

    with pytest.raises(
        ExportError, match=r"model_int8\.onnx: row \d+: the model gave logits that are not finite"
    ):
        judge(rows, give(0, task=task), broken, task=task)


def test_shifts_are_measured_for_every_file(split):
    task, rows = split
    settings = ScoreSettings(task=task, num_labels=3, pad_token_id=0, batch_rows=8)
    models = {name: give(0, task=task) for name in ("model.onnx", "model_fp16.onnx")}

    shifts = measure_shifts(models, spread_rows(rows, most=9), settings, seq_lens=[8, 24])

    assert [(name, shift.logit) for name, shift in shifts.items()] == [
        ("model.onnx", 0.0),
        ("model_fp16.onnx", 0.0),
    ]


@pytest.mark.parametrize(("most", "found"), [(1, 1), (5, 5), (64, 40)])
def test_rows_are_spread_from_the_shortest_on(split, most, found):
    _, rows = split

    lengths = [len(row) for row in spread_rows(rows, most=most)]

    assert len(lengths) == found
    assert lengths == sorted(lengths)
    assert lengths[0] == rows.lengths.min()
    if most > 1:
        assert lengths[-1] == rows.lengths.max()


def test_percentiles_are_lengths_that_occur():
    found = length_percentiles(np.array([3] * 90 + [5] * 9 + [100]))

    assert len(found) == 101
    assert (found[0], found[50], found[95], found[99], found[100]) == (3, 3, 5, 5, 100)
    assert length_percentiles(np.array([7])) == (7,) * 101


def test_a_files_size_includes_its_weights_elsewhere(tmp_path: Path):
    for name, size in {"model.onnx": 3, "model.onnx.data": 40, "model_int8.onnx": 5}.items():
        (tmp_path / name).write_bytes(b"x" * size)

    assert file_sizes(tmp_path, ["model.onnx", "model_int8.onnx"]) == {
        "model.onnx": 43,
        "model_int8.onnx": 5,
    }


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("with_int8", [True, False])
def test_a_split_without_rows_is_refused_before_anything_is_written(
    tmp_path, monkeypatch, split, with_int8
):
    monkeypatch.setitem(export_samples._ROWS, split, 0)
    job = write_job_folders(tmp_path)
    settings = job.export.model_copy(update={"int8": with_int8})

    with pytest.raises(DataError, match=rf"shards: there are no {split} rows.*data\.{split}_share"):
        export(job.model_copy(update={"export": settings}))

    assert not job.bundle_dir.exists()
