from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_samples import facts_of, label_reader

from pipeline.config import DataSettings
from pipeline.contract.shards import SPLITS
from pipeline.data.blocks import REASONS
from pipeline.data.row_facts import NOT_SAMPLED
from pipeline.data.selection import (
    assign_splits,
    label_pools,
    reject_duplicates,
    sample_rows,
    share_out,
)

DATA = DataSettings(files=("x.csv",))


def reasons_of(facts):
    return [None if reason < 0 else REASONS[reason].value for reason in facts.reason]


def splits_of(facts):
    return [SPLITS[split] if split >= 0 else None for split in facts.split]


def assign(labels, data=DATA, *, splits=None, prefix="text"):
    facts = facts_of(labels, splits=splits, prefix=prefix)
    pools = label_pools(facts, facts.usable, label_reader(labels)) if data.stratify else None
    assign_splits(facts, data, pools=pools)
    return splits_of(facts)


def sample(labels, count, seed=0):
    facts = facts_of(labels, seed=seed)
    pools = label_pools(facts, facts.usable, label_reader(labels))
    sample_rows(facts, count=count, pools=pools)
    return facts.usable.tolist()


def test_same_text_and_label_is_a_duplicate_of_the_first():
    facts = facts_of(["a", "b", "a", "a"], texts=["x", "y", " x", "x"])

    reject_duplicates(facts)

    assert reasons_of(facts) == [None, None, "duplicate", "duplicate"]


def test_same_text_with_two_labels_is_rejected_in_all_its_rows():
    facts = facts_of(["a", "a", "b", "a"], texts=["x", "y", "x", "x"])

    reject_duplicates(facts)

    conflict = "conflicting_labels"
    assert reasons_of(facts) == [conflict, None, conflict, conflict]


def test_text_given_to_two_splits_stays_in_the_later_one():
    splits = ["train", "train", "test", "validation", "test", None]
    facts = facts_of(["a"] * 6, texts=["x"] * 6, splits=splits)

    reject_duplicates(facts)

    across = "duplicate_across_splits"
    assert reasons_of(facts) == [across, across, None, across, "duplicate", across]


def test_rejected_rows_are_nobodys_duplicates():
    facts = facts_of(["a", "a"], texts=["x", "x"])
    facts.reason[0] = 0

    reject_duplicates(facts)

    assert facts.reason.tolist() == [0, -1]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("ab")), max_size=12))
def test_every_text_is_left_once_or_was_labelled_twice(rows):
    facts = facts_of([label for _, label in rows], texts=[text for text, _ in rows])

    reject_duplicates(facts)

    left = [rows[row] for row in facts.usable]
    labels = {text: {label for other, label in rows if other == text} for text, _ in rows}
    assert sorted(text for text, _ in left) == sorted(t for t in labels if len(labels[t]) == 1)
    assert all(rows.index(row) in facts.usable for row in left)


def test_split_follows_the_hash_and_the_shares():
    facts = facts_of(["a"] * 3)
    facts.text_high[:] = [0x3F << 56, 0x40 << 56, 0x80 << 56]
    data = DataSettings(files=("x.csv",), validation_share=0.25, test_share=0.25)

    assign_splits(facts, data, pools=None)

    assert splits_of(facts) == ["test", "validation", "train"]


def test_rows_keep_their_split_when_rows_are_added():
    assert assign(["a", "b"] * 200)[:200] == assign(["a", "b"] * 100)


def test_shares_of_the_splits_are_about_those_asked_for():
    sizes = Counter(assign(["a", "b"] * 2000))

    assert abs(sizes["test"] - 400) < 80
    assert abs(sizes["validation"] - 400) < 80


def test_given_split_counts_and_the_shares_are_of_the_rest():
    data = DataSettings(files=("x.csv",), test_files=("y.csv",))

    splits = assign(["a"] * 500, data, splits=["test"] * 100 + [None] * 400)

    assert splits[:100] == ["test"] * 100
    rest = Counter(splits[100:])
    assert rest["test"] == 0
    assert abs(rest["validation"] - 40) < 20


def test_stratified_splits_give_every_label_the_exact_shares():
    data = DataSettings(files=("x.csv",), stratify=True, validation_share=0.2, test_share=0.1)
    labels = ["a"] * 100 + ["b"] * 30 + ["c"] * 2

    splits = assign(labels, data)

    counts = Counter(zip(labels, splits, strict=True))
    assert [counts["a", split] for split in SPLITS] == [70, 20, 10]
    assert [counts["b", split] for split in SPLITS] == [21, 6, 3]
    assert [counts["c", split] for split in SPLITS] == [2, 0, 0]


@pytest.mark.slow
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.floats(0.01, 0.49))
def test_stratified_splits_leave_every_label_a_train_row(labels, share):
    data = DataSettings(files=("x.csv",), stratify=True, validation_share=share, test_share=share)

    splits = assign(labels, data)

    assert {label for label, split in zip(labels, splits, strict=True) if split == "train"} == set(
        labels
    )


def test_rows_with_several_labels_go_by_their_rarest():
    labels = [["a"], ["a", "b"], ["a", "c"], ["a", "b", "c"], [], ["b"]]
    facts = facts_of(labels)

    pools = label_pools(facts, facts.usable, label_reader(labels))

    assert pools.names == ["", "a", "b", "c"]
    assert [pools.names[pool] for pool in pools.pool] == ["a", "b", "c", "c", "", "b"]


def test_sample_takes_equally_of_each_label_and_differs_by_seed():
    labels = ["a"] * 90 + ["b"] * 30

    chosen = sample(labels, 40)

    assert Counter(labels[row] for row in chosen) == {"a": 20, "b": 20}
    assert sample(labels, 40) == chosen
    assert sample(labels, 40, seed=1) != chosen


def test_sample_of_all_rows_is_all_rows_and_the_others_are_marked():
    labels = ["a", "b", "b"]
    facts = facts_of(labels)

    assert sample(labels, 10) == [0, 1, 2]
    sample_rows(facts, count=1, pools=label_pools(facts, facts.usable, label_reader(labels)))
    assert (facts.reason == NOT_SAMPLED).sum() == 2


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=3), st.integers(0, 50), min_size=1), st.integers(0, 200))
def test_share_out_gives_all_that_fits_and_never_more_than_there_is(available, count):
    quotas = share_out(available, count)

    assert sum(quotas.values()) == min(count, sum(available.values()))
    assert all(quotas[label] <= available[label] for label in available)
    unfilled = [quotas[label] for label in available if quotas[label] < available[label]]
    assert not unfilled or max(quotas.values()) <= min(unfilled) + 1


@pytest.mark.parametrize("num_rows", [0, 1])
def test_no_rows_or_one_are_no_special_case(num_rows):
    facts = facts_of(["a"] * num_rows)

    reject_duplicates(facts)
    assign_splits(facts, DATA, pools=None)

    assert np.isin(facts.split, [0, 1, 2]).all()
