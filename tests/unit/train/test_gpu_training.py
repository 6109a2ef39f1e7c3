"""The loop on a CUDA device."""

import pytest
import torch
from train_samples import build_job, prepare_run

from pipeline.train.group import SingleGroup
from pipeline.train.history import read_history
from pipeline.train.loop import run_training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def train_on(device, output_dir):
    run = prepare_run(build_job(output_dir))
    run_training(run, group=SingleGroup(), device=torch.device(device), num_threads=1)
    return [record.loss for record in read_history(run.checkpoint_dir)]


def test_losses_on_cuda_follow_those_on_the_cpu(tmp_path):
    losses = {device: train_on(device, tmp_path / device) for device in ("cpu", "cuda")}

    # Dropout draws differ by device, so only the first step's size is comparable.
    assert losses["cuda"][0] == pytest.approx(losses["cpu"][0], abs=0.2)
    assert len(losses["cuda"]) == len(losses["cpu"])
