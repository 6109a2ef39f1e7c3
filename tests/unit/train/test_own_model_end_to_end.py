"""A model by import path from shards to served answers; serving knows nothing of its module."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from train_samples import MAX_SEQ_LEN, build_job, run_alone, write_shards

from pipeline.config import JobConfig, Task
from pipeline.contract.bundle import load_bundle
from pipeline.contract.errors import AlteredFileError, TrainingError
from pipeline.contract.folder import read_manifest
from pipeline.contract.shards import load_shards
from pipeline.evaluate.run import evaluate
from pipeline.export.run import export
from pipeline.model.trained import load_trained
from pipeline.train.history import read_history
from pipeline.train.run import plan_run, train

ROOT = Path(__file__).parents[3]
SOURCE = (ROOT / "tests/unit/model/own_models.py").read_text(encoding="utf-8")
SERVE = """
import json, sys
import numpy as np
from pathlib import Path
from pipeline.contract.bundle import load_bundle
from pipeline.export.verify import verify
from serve_app.session import ScoringSession, score_rows
bundle = load_bundle(Path(sys.argv[1]))
lines = verify(bundle.folder)
session = ScoringSession(
    bundle.model_path("model.onnx"),
    pad_token_id=bundle.manifest.pad_token_id,
    num_labels=len(bundle.manifest.labels),
    num_threads=1,
)
rows = [np.array(row, dtype=np.int32) for row in json.loads(sys.argv[2])]
scored = score_rows(session, rows, max_batch_tokens=64, max_batch_requests=8)
print(json.dumps([lines, [logits.tolist() for logits in scored]]))
assert "torch" not in sys.modules
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that this process can import, and this test alone."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / "code"
    folder.mkdir()
    # The optimiser adds its folder to the path once; monkeypatch would take that back as well.
    import onnxruntime.transformers  # noqa: F401

    monkeypatch.syspath_prepend(folder)
    path = folder / f"{name}.py"
    path.write_text(SOURCE)
    yield path
    sys.modules.pop(name, None)


def own_job(output_dir, module, task=Task.SEQUENCE, **settings):
    values = build_job(output_dir, task, **settings).model_dump()
    factory = "token_bag" if task is Task.TOKEN else "bag"
    values["model"]["factory"] = f"{module.stem}:{factory}"
    values["model"]["factory_arguments"] = {"width": 32}
    return JobConfig.model_validate(values)


def fingerprint_of(job):
    return plan_run(job, load_shards(job.shards_dir)).facts["fingerprint"]


def serve_elsewhere(bundle_dir, rows):
    """Verify and run a bundle in a process that cannot import the model's module."""
    ids = json.dumps([row.tolist() for row in rows])
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(bundle_dir), ids],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_it_learns_and_its_bundle_serves_without_its_module(tmp_path, module, capfd):
    job = own_job(tmp_path, module, epochs=12, base_lr=2.0)
    write_shards(job)
    train(job, fit=run_alone)
    evaluate(job)

    export(job)

    assert "GroupNorm stands in the place of BatchNorm in norm" in capfd.readouterr().err
    trained = load_trained(job.checkpoint_dir)
    assert trained.architecture.factory == f"{module.stem}:bag"
    assert trained.architecture.factory_arguments == {"width": 32}
    manifest = load_bundle(job.bundle_dir).manifest
    quality = manifest.quality
    assert quality["fusion"] is None
    assert quality["notes"] == [
        "not fused: what a model of model.factory must contain is not known"
    ]
    assert manifest.batch_shift["model.onnx"].logit < 1e-5
    split = load_shards(job.shards_dir).split("test")
    rows = [split.input_ids(index) for index in range(len(split))]
    lines, logits = serve_elsewhere(job.bundle_dir, rows)
    assert any("model_int8.onnx: finite logits" in line for line in lines)
    for row, found in zip(rows, logits, strict=True):
        ids = torch.from_numpy(row[None].astype(np.int64))
        with torch.no_grad():
            expected = trained.model(ids, torch.ones_like(ids))[0]
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)
    metrics = json.loads((job.report_dir / "metrics.json").read_text())
    assert quality["accuracy"]["model.onnx"] == pytest.approx(metrics["accuracy"])
    losses = [record.loss for record in read_history(job.checkpoint_dir)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.1


@pytest.mark.slow
def test_the_last_product_alone_stays_float(tmp_path, module):
    job = own_job(tmp_path, module, Task.TOKEN, epochs=1)
    write_shards(job)
    train(job, fit=run_alone)

    export(job)

    graph = onnx.load(job.bundle_dir / "model_int8.onnx").graph
    names = {node.name: node.op_type for node in graph.node}
    assert names["/model/hidden/MatMul_quant"] == "MatMulInteger"
    assert names["/model/classifier/MatMul"] == "MatMul"


@pytest.mark.slow
def test_the_slicing_into_micro_batches_changes_no_loss(tmp_path, module):
    def losses(micro_batch):
        job = own_job(tmp_path / str(micro_batch), module, micro_batch=micro_batch)
        write_shards(job)
        train(job, fit=run_alone)
        return [record.loss for record in read_history(job.checkpoint_dir)]

    np.testing.assert_allclose(losses(1), losses(4), atol=1e-5)


def test_a_changed_file_or_argument_trains_anew(tmp_path, module):
    job = own_job(tmp_path, module)
    write_shards(job)
    before = fingerprint_of(job)
    arguments = {**job.model.factory_arguments, "width": 48}
    wider = job.model_copy(
        update={"model": job.model.model_copy(update={"factory_arguments": arguments})}
    )

    module.write_text(SOURCE + "# One more line.\n")

    assert fingerprint_of(job) != before
    assert fingerprint_of(wider) != fingerprint_of(job)


def test_the_encoders_sizes_do_not_train_it_anew(tmp_path, module):
    job = own_job(tmp_path, module)
    write_shards(job)
    sizes = {"hidden_size": 64, "num_heads": 3, "dropout": 0.5, "pooling": "mean"}

    other = job.model_copy(update={"model": job.model.model_copy(update=sizes)})

    assert fingerprint_of(other) == fingerprint_of(job)


def test_a_checkpoint_is_not_loaded_into_other_code(tmp_path, module):
    job = own_job(tmp_path, module, epochs=1)
    write_shards(job)
    train(job, fit=run_alone)

    module.write_text(SOURCE.replace("torch.relu", "torch.tanh"))

    with pytest.raises(AlteredFileError) as caught:
        load_trained(job.checkpoint_dir)
    assert f"the file of {module.stem}:bag is not that of this training" in str(caught.value)
    sha256 = read_manifest(job.checkpoint_dir)["architecture"]["factory_sha256"]
    assert f"whose sha256 is {sha256}. Put that file back, or run `textlane train`" in str(
        caught.value
    )


def test_a_model_for_another_task_is_refused_before_a_checkpoint_is_opened(tmp_path, module):
    job = own_job(tmp_path, module)
    of_words = {"factory": f"{module.stem}:token_bag"}
    job = job.model_copy(update={"model": job.model.model_copy(update=of_words)})
    write_shards(job)

    with pytest.raises(TrainingError, match=r"must be float \[2, 3\].*are float32 \[2, 5, 3\]"):
        train(job, fit=run_alone)

    assert not job.checkpoint_dir.exists()


def test_pretrained_gives_it_only_the_tokenizer(tmp_path, module):
    job = own_job(tmp_path, module)
    write_shards(job)
    job = job.model_copy(
        update={"model": job.model.model_copy(update={"pretrained": str(tmp_path / "weights")})}
    )

    run = plan_run(job, load_shards(job.shards_dir))

    assert run.pretrained is None
    assert run.architecture.max_position_embeddings == MAX_SEQ_LEN
