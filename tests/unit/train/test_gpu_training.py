"""The loop, its memory and its loss scale on a CUDA device."""

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from train_samples import build_job, build_micro_batch, build_tiny_model, prepare_run

from pipeline.config import TrainSettings
from pipeline.model.architecture import Architecture
from pipeline.model.weights import build_new_model
from pipeline.train.backoff import StepRunner
from pipeline.train.group import SingleGroup, seed_step
from pipeline.train.history import read_history
from pipeline.train.loop import run_training
from pipeline.train.memory import build_memory_ledger
from pipeline.train.micro_batches import MicroBatch
from pipeline.train.step import Optimisation, train_step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
CUDA = torch.device("cuda")
ROWS, SEQ_LEN = 256, 128


def train_on(device, output_dir):
    run = prepare_run(build_job(output_dir))
    run_training(run, group=SingleGroup(), device=torch.device(device), num_threads=1)
    return [record.loss for record in read_history(run.checkpoint_dir)]


def build_wide_model(*, dropout=0.1):
    architecture = Architecture(
        vocab_size=1000,
        hidden_size=384,
        num_layers=4,
        num_heads=6,
        intermediate_size=1536,
        max_position_embeddings=SEQ_LEN,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
        dropout=dropout,
        pooling="mean",
        num_labels=3,
        task="sequence_classification",
        pad_token_id=0,
    )
    return build_new_model(architecture, seed=1, pretrained=None)[0].train()


def build_wide_batch():
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(1, 1000, (ROWS, SEQ_LEN), generator=generator)
    return MicroBatch(
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        labels=torch.arange(ROWS) % 3,
        row_ids=tuple(range(ROWS)),
    )


def build_runner(model, *, told=None, report_dir=None, precision="fp32"):
    state = Optimisation(model, TrainSettings(precision=precision), device=CUDA)
    state.set_lr(1e-3)
    told = [] if told is None else told
    return StepRunner(
        state,
        group=SingleGroup(),
        micro_batch=ROWS,
        on_out_of_memory=lambda message, limit: told.append(limit),
        report_dir=report_dir,
    )


def run_step(runner, step=1):
    return runner.run(
        [build_wide_batch()], begin=lambda: seed_step(7, step=step, rank=0), step=step
    )


@pytest.fixture
def small_device():
    """Return a function that leaves this process as many bytes of the device."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(CUDA).total_memory
    yield lambda size: torch.cuda.set_per_process_memory_fraction(size / total, CUDA)
    torch.cuda.set_per_process_memory_fraction(1.0, CUDA)
    torch.cuda.empty_cache()


def test_losses_on_cuda_follow_those_on_the_cpu(tmp_path):
    losses = {device: train_on(device, tmp_path / device) for device in ("cpu", "cuda")}

    # Dropout draws differ by device, so only the first step's size is comparable.
    assert losses["cuda"][0] == pytest.approx(losses["cpu"][0], abs=0.2)
    assert len(losses["cuda"]) == len(losses["cpu"])


def test_step_that_runs_out_of_memory_is_repeated_with_the_same_gradient(small_device, tmp_path):
    model, told = build_wide_model(dropout=0.0), []
    ledger = build_memory_ledger(
        model, precision="fp32", rows=ROWS, seq_len=SEQ_LEN, device_type="cuda"
    )
    roomy = build_runner(deepcopy(model))
    whole = run_step(roomy)
    gradients = roomy._state.gradients.cpu()
    del roomy

    small_device(ledger.total_bytes - ledger.activations_bytes // 3)
    cramped = build_runner(model, told=told, report_dir=tmp_path)
    sliced = run_step(cramped)

    assert told
    assert cramped.micro_batch == told[-1] < ROWS
    assert sliced.loss == pytest.approx(whole.loss, rel=1e-5)
    # TF32 is off by default, so only the order of sums differs.
    torch.testing.assert_close(cramped._state.gradients.cpu(), gradients, atol=1e-5, rtol=1e-3)
    assert "out of memory" in (tmp_path / "out_of_memory_step_1.txt").read_text()
    assert (tmp_path / "out_of_memory_step_1.pickle").stat().st_size > 0


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_ledger_is_within_a_tenth_of_the_measured_peak(precision):
    model = build_wide_model()
    ledger = build_memory_ledger(
        model, precision=precision, rows=ROWS, seq_len=SEQ_LEN, device_type="cuda"
    )
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(CUDA)
    runner = build_runner(model, precision=precision)
    run_step(runner, step=1)
    torch.cuda.reset_peak_memory_stats(CUDA)

    run_step(runner, step=2)

    peak = torch.cuda.max_memory_allocated(CUDA) - before
    assert ledger.total_bytes == pytest.approx(peak, rel=0.1)


def test_fp16_overflow_halves_the_scale_and_good_steps_double_it():
    settings = TrainSettings(precision="fp16", loss_scale=2.0**40, loss_scale_growth_steps=2)
    state = Optimisation(build_tiny_model().train(), settings, device=CUDA)
    state.set_lr(1e-3)

    results = [
        train_step(state, [build_micro_batch([3, 9])], group=SingleGroup()) for _ in range(60)
    ]

    scales = [result.loss_scale for result in results]
    first_good = next(i for i, result in enumerate(results) if not result.is_skipped)
    assert scales[: first_good + 1] == [2.0 ** (40 - step) for step in range(first_good + 1)]
    assert first_good > 0
    assert any(later == 2 * earlier for earlier, later in pairwise(scales))
