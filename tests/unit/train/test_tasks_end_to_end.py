"""Shards to served answers for the tasks that differ most from one label for one text."""

import json

import numpy as np
import pytest
import torch
from train_samples import build_job, run_alone, write_shards

from pipeline.config import Task
from pipeline.contract.bundle import load_bundle
from pipeline.contract.shards import load_shards
from pipeline.evaluate.run import evaluate
from pipeline.export.run import export
from pipeline.export.verify import verify
from pipeline.model.trained import load_trained
from pipeline.train.history import read_history
from pipeline.train.run import train
from serve_app.answers import AnswerDetail, build_answer
from serve_app.config import ServeSettings
from serve_app.encoding import encode_pair, encode_texts
from serve_app.limits import resolve_limits
from serve_app.session import ScoringSession, score_rows

pytestmark = pytest.mark.slow


def run_stages(job):
    write_shards(job)
    train(job, fit=run_alone)
    evaluate(job)
    export(job)
    verify(job.bundle_dir)
    return load_bundle(job.bundle_dir)


def run_torch(job, row_ids):
    model = load_trained(job.checkpoint_dir).model
    with torch.no_grad():
        return [
            model(torch.from_numpy(ids[None].astype(np.int64)), torch.ones(1, len(ids)).long())[0]
            for ids in row_ids
        ]


def serve(bundle, encode):
    limits = resolve_limits(ServeSettings(bundle="b"), bundle)
    rows = encode(encoder=bundle.load_text_encoder(), limits=limits)
    manifest = bundle.manifest
    session = ScoringSession(
        bundle.model_path("model.onnx"),
        pad_token_id=manifest.pad_token_id,
        num_labels=len(manifest.labels),
        num_threads=1,
    )
    token_ids = [row.input_ids for row in rows]
    scored = score_rows(session, token_ids, max_batch_tokens=64, max_batch_requests=8)
    answers = [
        build_answer(
            row,
            logits,
            task=manifest.task,
            labels=manifest.labels,
            detail=AnswerDetail(with_scores=True),
        )
        for row, logits in zip(rows, scored, strict=True)
    ]
    return token_ids, scored, answers


def test_multi_label_shards_become_served_labels(tmp_path):
    job = build_job(tmp_path, Task.MULTI_LABEL, epochs=24, base_lr=2.0)

    bundle = run_stages(job)

    losses = [record.loss for record in read_history(job.checkpoint_dir)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.1
    metrics = json.loads((job.report_dir / "metrics.json").read_text())
    quality = bundle.manifest.quality
    for figure in ("accuracy", "micro_f1", "macro_f1"):
        assert quality[figure]["model.onnx"] == pytest.approx(metrics[figure])
    split = load_shards(job.shards_dir).split("test")
    texts = [split.text(index) for index in range(len(split))]
    row_ids, scored, answers = serve(
        bundle, lambda **parts: encode_texts(texts, task=job.task.value, **parts)
    )
    for logits, expected, answer in zip(scored, run_torch(job, row_ids), answers, strict=True):
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4)
        scores = torch.sigmoid(expected).tolist()
        assert list(answer.scores.values()) == pytest.approx(scores, abs=1e-4)
        assert len(answer.labels) == sum(score >= 0.5 for score in scores)


def test_shards_of_pairs_become_served_answers_that_know_first_from_second(tmp_path):
    job = build_job(tmp_path, takes_pairs=True, epochs=4)

    bundle = run_stages(job)

    assert bundle.manifest.takes_pairs
    metrics = json.loads((job.report_dir / "metrics.json").read_text())
    assert bundle.manifest.quality["accuracy"]["model.onnx"] == pytest.approx(metrics["accuracy"])
    split = load_shards(job.shards_dir).split("test")
    pairs = [(split.text(index), split.text_pair(index)) for index in range(len(split))]
    row_ids, scored, answers = serve(
        bundle, lambda **parts: [encode_pair(*pair, **parts) for pair in pairs]
    )
    for index, (logits, expected) in enumerate(zip(scored, run_torch(job, row_ids), strict=True)):
        assert row_ids[index].tolist() == split.input_ids(index).tolist()
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4)
    assert {answer.label for answer in answers} <= set(bundle.manifest.labels)
    model = load_trained(job.checkpoint_dir).model
    model.embeddings.sep_token_id = None
    with torch.no_grad():
        ids = torch.from_numpy(row_ids[0][None].astype(np.int64))
        without_types = model(ids, torch.ones_like(ids))[0]
    assert not np.allclose(without_types.numpy(), scored[0], atol=1e-5)
