import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from train_fakes import build_thread_groups
from train_runs import run_together, run_with, timeless, timeless_validations, without_dropout
from train_samples import NUM_LABELS, build_job, prepare_run

from pipeline.config import Task
from pipeline.contract.errors import NotFiniteError
from pipeline.contract.folder import read_manifest, write_manifest
from pipeline.contract.shards import load_shards
from pipeline.model.weights import build_new_model
from pipeline.multi_label_quality import score_logits
from pipeline.quality import (
    accuracy,
    entity_f1,
    join_labelled,
    labels_of,
    macro_f1,
    predict_split,
    softmax,
    tags_of,
)
from pipeline.train.group import SingleGroup
from pipeline.train.history import read_validations
from pipeline.train.step import Optimisation
from pipeline.train.validation import Validator

CPU = torch.device("cpu")
BIO = ["O", "B-PER", "I-PER"]


def name_labels(run, names):
    manifest = read_manifest(run.shards_dir)
    write_manifest(run.shards_dir, manifest | {"labels": names})


def build_state(run):
    model, _ = build_new_model(run.architecture, seed=1, pretrained=None)
    return Optimisation(model.train(), run.job.train, device=CPU)


def predict(run, state):
    """Return every validation row's logits and labels, by the code that evaluation uses."""
    split = load_shards(run.shards_dir).split("validation")
    state.model.eval()

    def score(input_ids, mask):
        with torch.no_grad():
            return state.model(torch.from_numpy(input_ids), torch.from_numpy(mask)).numpy()

    task = run.job.task.value
    logits = predict_split(split, score, batch_rows=4, pad_token_id=0, task=task)
    state.model.train()
    return logits, labels_of(split)


@pytest.mark.parametrize("task", [Task.SEQUENCE, Task.TOKEN])
def test_figures_are_those_of_evaluation(tmp_path, task):
    run = prepare_run(build_job(tmp_path, task))
    name_labels(run, BIO)
    state = build_state(run)
    logits, labels = predict(run, state)

    figures = Validator(run, state, group=SingleGroup()).measure(micro_batch=3)

    assert figures.accuracy == pytest.approx(accuracy(logits, labels))
    assert figures.macro_f1 == pytest.approx(macro_f1(logits, labels, NUM_LABELS))
    scores, true = join_labelled(logits, labels)
    expected_loss = -np.log(softmax(scores)[np.arange(len(true)), true]).mean()
    assert figures.loss == pytest.approx(expected_loss, abs=1e-5)
    if task is Task.TOKEN:
        tags = [tags_of(*row, BIO) for row in zip(logits, labels, strict=True)]
        expected = entity_f1([true for true, _ in tags], [found for _, found in tags])
        assert expected["support"] > 0
        assert figures.entity_f1 == pytest.approx(expected["f1"])
    else:
        assert figures.entity_f1 is None


def test_figures_of_multi_label_rows_are_those_of_evaluation(tmp_path):
    run = prepare_run(build_job(tmp_path, Task.MULTI_LABEL))
    state = build_state(run)

    figures = Validator(run, state, group=SingleGroup()).measure(micro_batch=4)

    expected = score_logits(*predict(run, state), NUM_LABELS)
    assert figures.accuracy == pytest.approx(expected["accuracy"])
    assert figures.macro_f1 == pytest.approx(expected["macro_f1"])


@pytest.mark.parametrize("world_size", [2, 5])
def test_all_ranks_hold_the_same_figures_bit_for_bit(tmp_path, world_size):
    run = prepare_run(build_job(tmp_path, Task.TOKEN))
    alone = Validator(run, build_state(run), group=SingleGroup()).measure(micro_batch=4)

    def measure(group):
        return Validator(run, build_state(run), group=group).measure(micro_batch=4)

    with ThreadPoolExecutor(world_size) as pool:
        found = list(pool.map(measure, build_thread_groups(world_size)))

    assert set(found) == {found[0]}
    assert found[0].loss == pytest.approx(alone.loss, abs=1e-6)
    assert found[0].accuracy == alone.accuracy


def test_measuring_leaves_modes_and_generators_as_they_were(tmp_path):
    run = prepare_run(build_job(tmp_path))
    state = build_state(run)
    state.model.embeddings.eval()
    modes = [module.training for module in state.model.modules()]
    validator = Validator(run, state, group=SingleGroup())

    def draw():
        return random.random(), float(np.random.random()), float(torch.rand(()))

    draws = []
    for measures in (False, True):
        for generator in (random.seed, np.random.seed, torch.manual_seed):
            generator(3)
        if measures:
            validator.measure(micro_batch=4)
        draws.append(draw())

    assert draws[0] == draws[1]
    assert [module.training for module in state.model.modules()] == modes
    assert validator.measure(micro_batch=4) == validator.measure(micro_batch=4)


@pytest.mark.slow
def test_measuring_changes_nothing_learned(tmp_path):
    settings = {"never": 0, "each epoch": None, "often": 1}
    runs = {
        name: prepare_run(build_job(tmp_path / name, validate_every_steps=every))
        for name, every in settings.items()
    }

    for run in runs.values():
        run_with(run)

    histories = [timeless(run.checkpoint_dir) for run in runs.values()]
    assert histories[0] == histories[1] == histories[2]
    steps = {
        name: [record.step for record in read_validations(run.checkpoint_dir)]
        for name, run in runs.items()
    }
    assert steps == {"never": [], "each epoch": [5, 10], "often": list(range(1, 11))}


@pytest.mark.slow
def test_last_step_is_measured_whatever_the_interval(tmp_path):
    run = prepare_run(build_job(tmp_path, validate_every_steps=4))

    run_with(run)

    records = read_validations(run.checkpoint_dir)
    assert [(record.step, record.epoch) for record in records] == [(4, 0), (8, 1), (10, 1)]
    best = [record for record in records if record.is_best]
    assert best[0] is records[0]
    assert [record.loss for record in best] == sorted([r.loss for r in best], reverse=True)


@pytest.mark.slow
def test_two_ranks_validate_save_and_end_as_one_does(tmp_path):
    one, two = (
        without_dropout(prepare_run(build_job(tmp_path / name, validate_every_steps=2)))
        for name in ("one", "two")
    )
    run_with(one)

    run_together(two, 2)

    figures = [
        [(r.step, r.accuracy, r.is_best) for r in timeless_validations(run.checkpoint_dir)]
        for run in (one, two)
    ]
    assert figures[0] == figures[1]
    entries = [read_manifest(run.checkpoint_dir)["checkpoints"] for run in (one, two)]
    kinds = [[(e["step"], e["kind"], e["is_best"]) for e in found] for found in entries]
    assert kinds[0] == kinds[1]


def test_loss_of_a_validation_row_that_is_not_finite_stops_with_its_row(tmp_path):
    run = prepare_run(build_job(tmp_path, validate_every_steps=1))
    split = load_shards(run.shards_dir).split("validation")
    state = build_state(run)
    word = int(split.input_ids(0)[1])
    with torch.no_grad():
        state.model.embeddings.word_embeddings.weight[word] = float("nan")
    bad = [int(split.row_ids[row]) for row in range(len(split)) if word in split.input_ids(row)]

    with pytest.raises(NotFiniteError, match="validation rows is not finite") as caught:
        Validator(run, state, group=SingleGroup()).measure(micro_batch=4)

    assert sorted(caught.value.place.removeprefix("rows ").split(", ")) == sorted(map(str, bad))
    assert 0 < len(bad) < len(split)
