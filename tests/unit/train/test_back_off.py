from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
import torch
from torch import nn
from train_fakes import CrampedModel, build_thread_groups
from train_samples import build_micro_batch, build_tiny_model

from pipeline.config import Task, TrainSettings
from pipeline.contract.errors import TrainingError
from pipeline.train.backoff import StepRunner, halve_below
from pipeline.train.group import SingleGroup, seed_step
from pipeline.train.micro_batches import split_micro_batches
from pipeline.train.step import Optimisation

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTHS = [3, 4, 5, 6, 9, 9, 9, 10]
ROOMY = 1000


class Told:
    """Keeps what a runner tells."""

    def __init__(self):
        self.messages, self.limits = [], []

    def __call__(self, message, limit):
        self.messages.append(message)
        self.limits.append(limit)


def build_runner(model, *, limit=8, group=None, told=None, report_dir=None):
    state = Optimisation(model.train(), TrainSettings(), device=torch.device("cpu"))
    state.set_lr(1e-2)
    return StepRunner(
        state,
        group=group or SingleGroup(),
        micro_batch=limit,
        on_out_of_memory=told or Told(),
        report_dir=report_dir,
    )


def build_cramped(capacity, *, task=Task.SEQUENCE, **cramped):
    return CrampedModel(build_tiny_model(task, dropout=0.1), capacity=capacity, **cramped)


def run_steps(runner, batches, *, steps=2, rank=0):
    def begin_at(step):
        return lambda: seed_step(7, step=step, rank=rank)

    return [runner.run(batches, begin=begin_at(step), step=step) for step in range(1, steps + 1)]


def weights_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.slow
@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize(
    ("fails_in", "kind"),
    [("forward", None), ("backward", MemoryError), ("backward", torch.OutOfMemoryError)],
)
def test_step_that_ran_out_is_that_of_a_run_with_the_lower_limit_bit_for_bit(task, fails_in, kind):
    batches, told = [build_micro_batch(LENGTHS, task)], Told()
    cramped = build_cramped(25, task=task, fails_in=fails_in, kind=kind)
    lower = build_cramped(ROOMY, task=task)

    results = run_steps(build_runner(cramped, told=told), batches)
    expected = run_steps(build_runner(lower, limit=2), batches)

    assert told.limits == [4, 2]
    assert results == expected
    assert torch.equal(weights_of(cramped), weights_of(lower))
    assert cramped.shapes[-4:] == [(2, 4), (2, 6), (2, 9), (2, 10)]


@pytest.mark.slow
def test_run_that_goes_on_with_the_lower_limit_repeats_the_unbroken_one():
    batches, model = [build_micro_batch(LENGTHS)], build_cramped(45)
    runner = build_runner(model)
    run_steps(runner, batches, steps=1)
    copy = build_cramped(ROOMY)
    copy.load_state_dict(model.state_dict())
    resumed = build_runner(copy, limit=runner.micro_batch)
    kept = deepcopy(runner._state.optimizer.state_dict())
    resumed._state.optimizer.load_state_dict(kept)

    unbroken, again = (run_steps(each, batches) for each in (runner, resumed))

    assert runner.micro_batch == 4
    assert again == unbroken
    assert torch.equal(weights_of(copy), weights_of(model))


def test_gradient_after_backing_off_is_that_of_one_big_batch():
    batches = [build_micro_batch(LENGTHS)]
    roomy, cramped = (
        build_runner(CrampedModel(build_tiny_model(), capacity=capacity))
        for capacity in (ROOMY, 11)
    )

    (whole,), (sliced,) = (run_steps(each, batches, steps=1) for each in (roomy, cramped))

    assert cramped.micro_batch == 1
    assert sliced.loss == pytest.approx(whole.loss, abs=1e-6)
    torch.testing.assert_close(
        cramped._state.gradients, roomy._state.gradients, atol=1e-6, rtol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 4])
def test_one_rank_that_runs_out_lowers_the_limit_of_all(world_size, tmp_path):
    batches = split_micro_batches([build_micro_batch(LENGTHS)], 8 // world_size)

    def run(group):
        # Only the last rank is cramped, and only for two of its rows at once.
        is_last = group.rank == world_size - 1
        model, told = build_cramped(19 if is_last else ROOMY), Told()
        runner = build_runner(model, group=group, told=told, report_dir=tmp_path)
        results = run_steps(runner, [batches[group.rank]], rank=group.rank)
        return results, told, weights_of(model)

    with ThreadPoolExecutor(world_size) as pool:
        ranks = list(pool.map(run, build_thread_groups(world_size)))

    for results, told, weights in ranks:
        assert results == ranks[0][0]
        assert told.limits[-1] == 1
        assert told.messages == ranks[0][1].messages
        assert torch.equal(weights, ranks[0][2])
    text = (tmp_path / "out_of_memory_step_1.txt").read_text(encoding="utf-8")
    assert text.startswith(f"rank {world_size - 1}, 2 rows of 10 tokens\n")
    assert list(tmp_path.glob("*.pickle")) == []


def test_message_has_the_step_the_figures_and_what_was_done():
    told = Told()

    run_steps(build_runner(build_cramped(45), told=told), [build_micro_batch(LENGTHS)], steps=1)

    (message,) = told.messages
    assert message.startswith("memory ran out in step 1 on rank 0: 2.6 MB wanted, ")
    assert message.endswith(
        " MB there, in a pass of 8 rows of 10 tokens; repeated with at most 4 in a pass"
    )


def test_row_that_does_not_fit_alone_stops_every_rank_with_the_remedy():
    batches = split_micro_batches([build_micro_batch(LENGTHS)], 4)

    def run(group):
        runner = build_runner(build_cramped(9), group=group)
        before = weights_of(runner._state.model)
        with pytest.raises(TrainingError) as caught:
            run_steps(runner, [batches[group.rank]], rank=group.rank)
        assert torch.equal(weights_of(runner._state.model), before)
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, build_thread_groups(2))

    assert first == second
    assert first.startswith("row 107: memory ran out in step 1 on rank 1: 2.6 MB wanted, ")
    assert "1 rows of 10 tokens" in first
    assert "Lower model.max_seq_len" in first


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    runner = build_runner(build_cramped(0, kind=RuntimeError))

    with pytest.raises(RuntimeError, match="Tried to allocate"):
        run_steps(runner, [build_micro_batch(LENGTHS)])


def test_model_with_batch_norm_is_not_divided_but_told_the_micro_batch():
    model = build_cramped(45)
    model.norm = nn.BatchNorm1d(3)

    with pytest.raises(TrainingError, match=r"train.micro_batch: .*BatchNorm.* Set it to 4"):
        run_steps(build_runner(model), [build_micro_batch(LENGTHS)])


def test_optimizer_is_allocated_before_the_first_step_and_no_weight_changes():
    model = build_tiny_model()
    before = weights_of(model)

    runner = build_runner(model)

    kept = runner._state.optimizer.state.values()
    assert len(kept) == len(list(model.parameters()))
    assert all(float(value.abs().sum()) == 0.0 for state in kept for value in state.values())
    assert torch.equal(weights_of(model), before)
    assert {group["lr"] for group in runner._state.optimizer.param_groups} == {1e-2}


@pytest.mark.parametrize(("limit", "rows", "lower"), [(32, 32, 16), (32, 5, 4), (3, 2, 1)])
def test_limit_is_halved_until_it_divides_the_pass(limit, rows, lower):
    assert halve_below(limit, rows) == lower
