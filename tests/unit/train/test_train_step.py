import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from train_fakes import build_thread_groups
from train_samples import build_micro_batch, build_tiny_model

from pipeline.config import Task, TrainSettings
from pipeline.contract.errors import TrainingError
from pipeline.train.group import SingleGroup, seed_step
from pipeline.train.micro_batches import MicroBatch
from pipeline.train.step import Optimisation, decay_groups, row_losses, train_step

CPU = torch.device("cpu")
LENGTHS = [3, 4, 5, 9, 9, 6]


def build_state(task=Task.SEQUENCE, **settings):
    state = Optimisation(build_tiny_model(task).train(), TrainSettings(**settings), device=CPU)
    state.set_lr(1e-2)
    return state


def cut(batch, *slices):
    """Cut a batch into micro-batches and drop padding that no row of a slice needs."""
    parts = []
    for part in slices:
        longest = int(batch.attention_mask[part].sum(dim=1).max())
        labels = batch.labels[part]
        parts.append(
            MicroBatch(
                input_ids=batch.input_ids[part, :longest],
                attention_mask=batch.attention_mask[part, :longest],
                # Token labels are padded as the ids are.
                labels=labels[:, :longest]
                if labels.shape == batch.input_ids[part].shape
                else labels,
                row_ids=batch.row_ids[part],
            )
        )
    return parts


def weights_after(state):
    return torch.cat([parameter.detach().flatten() for parameter in state.model.parameters()])


def step_on_ranks(ranks, **state):
    """Run one step with each entry's micro-batches on a rank of its own."""

    def run(group):
        own = build_state(**state)
        result = train_step(own, ranks[group.rank], group=group)
        return result, own.gradients.clone(), weights_after(own)

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(run, build_thread_groups(len(ranks))))


@pytest.mark.parametrize("task", list(Task))
def test_micro_batches_of_unequal_weight_give_the_gradient_of_one_big_batch(task):
    batch = build_micro_batch(LENGTHS, task)
    whole, sliced = build_state(task), build_state(task)

    one = train_step(whole, [batch], group=SingleGroup())
    parts = cut(batch, slice(0, 1), slice(1, 5), slice(5, 6))
    many = train_step(sliced, parts, group=SingleGroup())

    assert many.loss == pytest.approx(one.loss, abs=1e-6)
    assert many.tokens == one.tokens == sum(LENGTHS)
    assert many.padded_tokens < one.padded_tokens == len(LENGTHS) * max(LENGTHS)
    torch.testing.assert_close(sliced.gradients, whole.gradients, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("task", list(Task))
def test_ranks_with_unequal_rows_give_the_gradient_of_one_big_batch(task):
    batch = build_micro_batch(LENGTHS, task)
    whole = build_state(task)
    one = train_step(whole, [batch], group=SingleGroup())

    ranks = [cut(batch, slice(0, 1), slice(1, 4)), cut(batch, slice(4, 6)), []]
    results = step_on_ranks(ranks, task=task)

    for result, gradients, weights in results:
        assert result == results[0][0]
        assert result.loss == pytest.approx(one.loss, abs=1e-6)
        torch.testing.assert_close(gradients, whole.gradients, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(weights, results[0][2], atol=0, rtol=0)


def test_multi_label_loss_is_the_mean_over_labels_of_the_binary_cross_entropy():
    logits = torch.tensor([[2.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

    losses = row_losses(logits, labels)

    first = (math.log1p(math.exp(-2)) + math.log1p(math.exp(-1)) + math.log(2)) / 3
    assert losses.tolist() == pytest.approx([first, math.log(2)])


def test_step_lowers_the_loss_and_clips_the_gradient():
    state, batch = build_state(max_grad_norm=0.01), [build_micro_batch(LENGTHS)]

    results = [train_step(state, batch, group=SingleGroup()) for _ in range(20)]

    assert results[-1].loss < results[0].loss - 0.5
    assert results[0].grad_norm > 0.01
    assert float(state.gradients.norm()) <= 0.01 + 1e-6


def test_bf16_gives_nearly_the_loss_of_fp32():
    batch = [build_micro_batch(LENGTHS)]

    full, half = (
        train_step(build_state(precision=precision), batch, group=SingleGroup())
        for precision in ("fp32", "bf16")
    )

    assert half.loss != full.loss
    assert half.loss == pytest.approx(full.loss, abs=1e-2)


def test_fp16_overflow_skips_the_step_halves_the_scale_and_keeps_the_weights():
    state = build_state(precision="fp16", loss_scale=2.0**126)
    before = weights_after(state)

    result = train_step(state, [build_micro_batch(LENGTHS)], group=SingleGroup())

    assert result.is_skipped
    assert result.loss_scale == 2.0**126
    assert state.scaler.get_scale() == 2.0**125
    assert torch.equal(weights_after(state), before)


def test_fp16_scale_doubles_after_the_set_number_of_good_steps():
    state = build_state(precision="fp16", loss_scale=8.0, loss_scale_growth_steps=2)
    before = weights_after(state)

    results = [
        train_step(state, [build_micro_batch(LENGTHS)], group=SingleGroup()) for _ in range(3)
    ]

    assert [result.loss_scale for result in results] == [8.0, 8.0, 16.0]
    assert not any(result.is_skipped for result in results)
    assert not torch.equal(weights_after(state), before)


def test_loss_that_is_not_finite_names_the_rows_and_leaves_the_weights():
    state, batch = build_state(), build_micro_batch(LENGTHS)
    with torch.no_grad():
        # Only row 105 holds this id.
        odd_id = int(batch.input_ids[5, 0]) + 5
        state.model.embeddings.word_embeddings.weight[odd_id] = float("nan")
    bad = [row for row, ids in zip(batch.row_ids, batch.input_ids, strict=True) if odd_id in ids]
    before = weights_after(state)

    with pytest.raises(TrainingError, match=f"rows {', '.join(map(str, bad))}: the loss is not"):
        train_step(state, [batch], group=SingleGroup())

    assert 0 < len(bad) < len(LENGTHS)
    torch.testing.assert_close(weights_after(state), before, equal_nan=True, atol=0, rtol=0)


def test_every_rank_learns_the_rows_of_a_loss_that_is_not_finite():
    batch = build_micro_batch(LENGTHS)

    def run(group):
        state = build_state()
        rows = cut(batch, slice(0, 3) if group.rank == 0 else slice(3, 6))
        if group.rank == 1:
            with torch.no_grad():
                state.model.classifier.bias[0] = float("nan")
        with pytest.raises(TrainingError) as caught:
            train_step(state, rows, group=group)
        return caught.value.place

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, build_thread_groups(2))) == ["rows 103, 104, 105"] * 2


def test_biases_and_layer_norms_do_not_decay():
    model = build_state().model
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    decayed, spared = decay_groups(model, weight_decay=0.01)

    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    assert all(parameter.dim() == 2 for parameter in decayed["params"])
    spared_names = {names[id(parameter)] for parameter in spared["params"]}
    assert all(name.endswith("bias") or "LayerNorm" in name for name in spared_names)
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_of_any_model_vectors_are_spared_decay_and_frozen_parameters_stay_out():
    model = nn.ModuleDict(
        {"in": nn.Linear(3, 3), "norm": nn.GroupNorm(1, 3), "out": nn.Linear(3, 2)}
    )
    model["out"].weight.requires_grad_(False)

    decayed, spared = decay_groups(model, weight_decay=0.01)

    assert decayed["params"] == [model["in"].weight]
    assert len(spared["params"]) == 4


def test_dropout_seeds_differ_by_step_and_rank_and_repeat():
    def draw(**place):
        seed_step(7, **place)
        return float(torch.rand(()))

    draws = [draw(step=step, rank=rank) for step in range(20) for rank in range(4)]

    assert len(set(draws)) == 80
    assert draw(step=19, rank=3) == draws[-1]


def test_rank_without_rows_takes_part_in_the_first_fp16_step():
    batch = build_micro_batch(LENGTHS)

    (with_rows, _, weights), (without, _, same) = step_on_ranks(
        [[batch], []], precision="fp16", loss_scale=8.0
    )

    assert with_rows == without
    assert with_rows.loss_scale == 8.0
    assert torch.equal(weights, same)
