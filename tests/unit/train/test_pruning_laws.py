import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.train.checkpoint import enter_checkpoint

KINDS = st.sampled_from(["rolling", "rolling", "permanent", "final"])
SAVES = st.lists(st.tuples(st.integers(1, 30), KINDS, st.booleans()), max_size=25)


def enter_all(saves, keep):
    """Return the entries after each save."""
    entries, found = [], []
    for step, kind, is_best in saves:
        entry = {"step": step, "kind": kind, "is_best": is_best, "file": f"step_{step}"}
        entries = enter_checkpoint(entries, entry, keep=keep)
        found.append(entries)
    return found


def last_of_each_step(saves):
    return {step: (kind, is_best) for step, kind, is_best in saves}


@pytest.mark.slow
@given(SAVES, st.integers(1, 4))
def test_entries_are_by_step_one_for_each_and_the_new_one_is_among_them_if_it_may_be(saves, keep):
    for (step, kind, is_best), entries in zip(saves, enter_all(saves, keep), strict=True):
        steps = [entry["step"] for entry in entries]

        assert steps == sorted(set(steps))
        newer = [e for e in entries if e["step"] > step and e["kind"] == "rolling"]
        assert step in steps or (kind == "rolling" and not is_best and len(newer) >= keep)


@pytest.mark.slow
@given(SAVES, st.integers(1, 4))
def test_all_but_rolling_ones_stay_and_of_those_the_newest(saves, keep):
    for count, entries in enumerate(enter_all(saves, keep), start=1):
        lasting = last_of_each_step(saves[:count])

        kept = {entry["step"] for entry in entries if entry["kind"] != "rolling"}
        assert kept == {step for step, (kind, _) in lasting.items() if kind != "rolling"}
        rolling = [e["step"] for e in entries if e["kind"] == "rolling" and not e["is_best"]]
        assert len(rolling) <= keep


@given(st.lists(st.tuples(KINDS, st.booleans()), max_size=40), st.integers(1, 4))
def test_best_one_is_the_last_that_was_the_best_and_is_never_pruned(kinds, keep):
    saves = [(step, kind, best) for step, (kind, best) in enumerate(kinds, start=1)]
    for count, entries in enumerate(enter_all(saves, keep), start=1):
        best = [step for step, _, is_best in saves[:count] if is_best]

        assert [entry["step"] for entry in entries if entry["is_best"]] == best[-1:]
        rolling = [
            step for step, kind, _ in saves[:count] if kind == "rolling" and step not in best[-1:]
        ]
        counted = [e["step"] for e in entries if e["kind"] == "rolling" and not e["is_best"]]
        assert set(counted) <= set(rolling)
        assert counted[-1:] == rolling[-1:]
