from dataclasses import replace

import pytest
from train_runs import run_together
from train_samples import build_job, prepare_run

from pipeline.contract.errors import TrainingError
from pipeline.contract.shards import load_shards
from pipeline.model.weights import build_new_model
from pipeline.train.group import SingleGroup
from pipeline.train.memory import build_memory_ledger
from pipeline.train.step_rows import find_worst_pass, open_steps


@pytest.mark.parametrize("settings", [{}, {"micro_batch": 2}, {"max_batch_tokens": 24}], ids=str)
def test_worst_pass_is_the_largest_of_the_first_epoch(tmp_path, settings):
    run = prepare_run(build_job(tmp_path, epochs=1, **settings))

    rows, seq_len = find_worst_pass(run.job, load_shards(run.shards_dir))

    with open_steps(run, group=SingleGroup(), first=0) as steps:
        shapes = [tuple(m.input_ids.shape) for loaded in steps for m in loaded.micro_batches]
    assert (rows, seq_len) in shapes
    assert rows * seq_len == max(height * width for height, width in shapes)


@pytest.mark.slow
def test_all_ranks_refuse_a_training_that_is_too_large_for_a_device(tmp_path):
    run = prepare_run(build_job(tmp_path))
    model, _ = build_new_model(run.architecture, seed=1, pretrained=None)
    ledger = build_memory_ledger(model, precision="fp32", rows=4, seq_len=12)
    huge = replace(run, memory=replace(ledger, parameters_bytes=10**16))

    with pytest.raises(TrainingError, match=r"each of 2 workers can have .*Not even one row fits"):
        run_together(huge, 2)
