"""Drops with their intervals, against hand and brute force."""

import numpy as np
import pytest
from paired_samples import NUM_LABELS, pair_ids, random_logits, swap

from pipeline.config import Task
from pipeline.export import paired_bootstrap
from pipeline.export.paired_answers import pair_answers
from pipeline.export.paired_bootstrap import measure_drops
from pipeline.multi_label_quality import score_logits
from pipeline.quality import accuracy, macro_f1

TASKS = [Task.SEQUENCE, Task.TOKEN, Task.MULTI_LABEL]


def _score(logits, labels, task):
    if task is Task.MULTI_LABEL:
        scores = score_logits(logits, labels, NUM_LABELS)
        return scores["accuracy"], scores["macro_f1"]
    return accuracy(logits, labels), macro_f1(logits, labels, NUM_LABELS)


def _brute_force(labels, first, second, *, task, texts, resamples, seed):
    """Score every resample from its rows alone; ``[resamples, 2]`` drops."""
    rng = np.random.default_rng(seed)
    num_texts = len(set(texts))
    drops = []
    for _ in range(resamples):
        drawn = rng.integers(0, num_texts, num_texts, dtype=np.int32)
        rows = [row for text in drawn for row in range(len(labels)) if texts[row] == text]
        parts = [
            _score([part[row] for row in rows], [labels[row] for row in rows], task)
            for part in (first, second)
        ]
        drops.append(np.subtract(*parts))
    return np.sort(np.array(drops), axis=0)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("texts", [list(range(12)), [0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 7, 7]])
def test_every_resample_scores_as_its_rows_do(task, texts):
    labels, first, second = random_logits(task, rows=12, seed=3)
    answers = pair_answers(
        (first, second), labels, task=task, num_labels=NUM_LABELS, row_ids=np.array(texts)
    )

    drops = measure_drops(answers, resamples=199, seed=5)

    brute = _brute_force(labels, first, second, task=task, texts=texts, resamples=199, seed=5)
    for index, drop in enumerate((drops.accuracy, drops.macro_f1)):
        whole = [_score(part, labels, task)[index] for part in (first, second)]
        assert (drop.first, drop.second) == pytest.approx(tuple(whole))
        ends = [brute[4, index], brute[-5, index], brute[-10, index]]
        assert [drop.low, drop.high, drop.upper] == pytest.approx(ends, abs=1e-8)
        assert drop.std_error == pytest.approx(brute[:, index].std(ddof=1))


def test_two_texts_and_one_loss_give_the_ends_that_one_can_count():
    # A resample holds the lost text never (1 of 4), once (2 of 4) or twice (1 of 4).
    answers = pair_ids([0, 1], [0, 1], [0, 0])

    drop = measure_drops(answers, resamples=2000, seed=0).accuracy

    assert (drop.first, drop.second, drop.drop) == (1.0, 0.5, 0.5)
    assert (drop.low, drop.high, drop.upper) == (0.0, 1.0, 1.0)
    assert drop.std_error == pytest.approx(0.125**0.5, rel=0.05)


def test_the_interval_of_many_texts_is_that_of_the_normal_law():
    # 1,000 texts, 30 lost and 10 won: drop 0.02, variance (0.04 - 0.0004) / 1000.
    true = [0] * 1000
    first, second = [0] * 990 + [1] * 10, [1] * 30 + [0] * 970

    drop = measure_drops(pair_ids(true, first, second), resamples=4000, seed=1).accuracy

    spread = (0.0396 / 1000) ** 0.5
    assert drop.drop == 0.02
    assert drop.std_error == pytest.approx(spread, rel=0.05)
    assert (drop.low, drop.high) == pytest.approx(
        (0.02 - 1.96 * spread, 0.02 + 1.96 * spread), abs=0.0015
    )
    assert drop.upper == pytest.approx(0.02 + 1.645 * spread, abs=0.0015)


@pytest.mark.parametrize("task", TASKS)
def test_without_flips_the_interval_is_a_point_at_zero(task):
    labels, first, _ = random_logits(task, rows=20, seed=0)
    answers = pair_answers(
        (first, first), labels, task=task, num_labels=NUM_LABELS, row_ids=np.arange(20)
    )

    drops = measure_drops(answers, resamples=100, seed=0)

    for drop in (drops.accuracy, drops.macro_f1):
        assert (drop.drop, drop.low, drop.high, drop.upper, drop.std_error) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("task", TASKS)
def test_swapping_the_models_negates_drop_and_interval(task):
    labels, first, second = random_logits(task, rows=30, seed=1)
    answers = pair_answers(
        (first, second), labels, task=task, num_labels=NUM_LABELS, row_ids=np.arange(30)
    )

    there = measure_drops(answers, resamples=500, seed=7)
    back = measure_drops(swap(answers), resamples=500, seed=7)

    for one, other in ((there.accuracy, back.accuracy), (there.macro_f1, back.macro_f1)):
        assert (one.drop, one.low, one.high) == (-other.drop, -other.high, -other.low)
        assert one.low < one.high


def test_the_seed_alone_decides_the_interval_not_the_size_of_the_chunks(monkeypatch):
    answers = pair_ids([0, 1, 2] * 20, [0, 1, 2] * 20, [0, 1, 0] * 20)
    whole = measure_drops(answers, resamples=101, seed=3)

    monkeypatch.setattr(paired_bootstrap, "_CHUNK_CELLS", 7)

    assert measure_drops(answers, resamples=101, seed=3) == whole
    assert measure_drops(answers, resamples=101, seed=4) != whole


def test_words_of_one_text_are_drawn_together():
    # 40 words lost in one text of 10: drawn word by word the interval would be far narrower.
    labels = [np.zeros(40, dtype=np.int32)] * 10
    right, wrong = np.eye(2, dtype=np.float32)[[[0] * 40, [1] * 40]]
    answers = pair_answers(
        ([right] * 10, [wrong] + [right] * 9),
        labels,
        task=Task.TOKEN,
        num_labels=2,
        row_ids=np.arange(10),
    )

    drop = measure_drops(answers, resamples=2000, seed=0).accuracy

    assert drop.drop == 0.1
    assert drop.high == pytest.approx(0.3)


def test_neither_no_texts_nor_too_few_resamples_give_an_interval():
    with pytest.raises(ValueError, match="need logits and labels"):
        pair_ids([], [], [])
    with pytest.raises(ValueError, match="40 resamples: 1, 39"):
        measure_drops(pair_ids([0], [0], [0]), resamples=39, seed=0)
