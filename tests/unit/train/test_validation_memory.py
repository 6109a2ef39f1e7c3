"""Measuring the validation rows survives running out of memory, with fewer rows in a pass."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple

import pytest
import torch
from train_fakes import CrampedModel, build_thread_groups
from train_runs import run_with
from train_samples import build_job, prepare_run

from pipeline.contract.errors import TrainingError
from pipeline.contract.folder import read_manifest
from pipeline.model.weights import build_new_model
from pipeline.train import loop
from pipeline.train.events import read_events
from pipeline.train.group import SingleGroup
from pipeline.train.history import read_validations
from pipeline.train.step import Optimisation
from pipeline.train.validation import Validator

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
ROOMY = 1000


class CrampedInEval(CrampedModel):
    """Lacks the room for measuring, not for training."""

    def forward(self, input_ids, attention_mask):
        if self.training:
            return self.model(input_ids, attention_mask)
        return super().forward(input_ids, attention_mask)


@pytest.fixture
def run(tmp_path):
    return prepare_run(build_job(tmp_path))


def build_validator(run, *, capacity, group=None, told=None, **cramped):
    model, _ = build_new_model(run.architecture, seed=1, pretrained=None)
    model = CrampedModel(model, capacity=capacity, **cramped)
    state = Optimisation(model.train(), run.job.train, device=CPU)
    told = [] if told is None else told
    return Validator(
        run,
        state,
        group=group or SingleGroup(),
        on_out_of_memory=lambda *what: told.append(what),
    ), model


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, MemoryError, None])
def test_pass_that_ran_out_is_halved_and_every_row_counts_once(run, kind):
    roomy, _ = build_validator(run, capacity=ROOMY)
    expected, told = roomy.measure(micro_batch=4), []
    cramped, model = build_validator(run, capacity=24, told=told, kind=kind)

    figures = cramped.measure(micro_batch=4)

    assert astuple(figures) == pytest.approx(astuple(expected), abs=1e-6)
    [(message, limit)] = told
    assert limit == 2
    assert message.startswith("memory ran out in validation on rank 0: ")
    assert message.endswith(" tokens; repeated with at most 2 in a pass")
    assert max(rows for rows, _ in model.shapes[-4:]) <= 2


def test_the_lower_limit_stays_so_that_memory_runs_out_once(run):
    told = []
    validator, model = build_validator(run, capacity=24, told=told)
    first = validator.measure(micro_batch=4)
    model.shapes.clear()

    second = validator.measure(micro_batch=4)

    assert len(told) == 1
    assert max(rows for rows, _ in model.shapes) <= 2
    assert astuple(second) == pytest.approx(astuple(first), abs=1e-6)


def test_one_rank_that_runs_out_leaves_the_figures_of_all_alike_and_all_are_told(run):
    roomy, _ = build_validator(run, capacity=ROOMY)
    expected = roomy.measure(micro_batch=4)

    def measure(group):
        told = []
        capacity = 12 if group.rank == 1 else ROOMY
        validator, _ = build_validator(run, capacity=capacity, group=group, told=told)
        return validator.measure(micro_batch=4), told

    with ThreadPoolExecutor(2) as pool:
        (first, told), (second, told_too) = pool.map(measure, build_thread_groups(2))

    assert first == second
    assert astuple(first) == pytest.approx(astuple(expected), abs=1e-6)
    assert told == told_too
    assert told[0][1] == 1
    assert "on rank 1: 2.6 MB wanted" in told[0][0]


def test_row_that_does_not_fit_alone_stops_every_rank_with_the_remedy(run):
    def measure(group):
        capacity = 6 if group.rank == 1 else ROOMY
        validator, _ = build_validator(run, capacity=capacity, group=group)
        with pytest.raises(TrainingError) as caught:
            validator.measure(micro_batch=4)
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(measure, build_thread_groups(2))

    assert first == second
    assert ": memory ran out in validation on rank 1: " in first
    assert "in a pass of 1 rows of" in first
    assert "and a row cannot be divided. Lower model.max_seq_len" in first


def test_other_errors_are_not_taken_for_a_lack_of_memory(run):
    validator, _ = build_validator(run, capacity=0, kind=RuntimeError)

    with pytest.raises(RuntimeError, match="Tried to allocate"):
        validator.measure(micro_batch=4)


def test_training_goes_on_and_tells_of_the_step(run, monkeypatch):
    def build_cramped(architecture, **how):
        model, notes = build_new_model(architecture, **how)
        return CrampedInEval(model, capacity=24), notes

    monkeypatch.setattr(loop, "build_new_model", build_cramped)

    run_with(run)

    [event] = read_events(run.checkpoint_dir)
    assert (event.kind, event.step) == ("out_of_memory", 5)
    assert "memory ran out in validation on rank 0" in event.message
    assert [record.step for record in read_validations(run.checkpoint_dir)] == [5, 10]
    assert read_manifest(run.checkpoint_dir)["is_finished"] is True
