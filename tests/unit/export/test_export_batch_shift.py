"""How far an answer moves with its batch, on models with known formulas."""

import numpy as np
import pytest

from pipeline.contract.errors import ExportError
from pipeline.export.batch_shift import measure_batch_shift

ROWS = [np.arange(1, length + 1, dtype=np.int32) for length in (2, 5, 9)]


def measure(run, *, rows=ROWS, probes=3, seq_lens=(4, 8, 12), is_multi_label=False):
    return measure_batch_shift(
        run,
        rows,
        probes=probes,
        pad_token_id=0,
        seq_lens=seq_lens,
        is_multi_label=is_multi_label,
    )


def sum_of_own_tokens(input_ids, mask):
    own = (input_ids * mask).sum(axis=1)
    return np.stack([own, -own], axis=1).astype(np.float32)


def moved_at(condition):
    """Return a model whose second logit is 1 more in batches for which the condition holds."""

    def run(input_ids, mask):
        logits = np.zeros((len(input_ids), 2), dtype=np.float32)
        logits[:, 1] = float(condition(input_ids, mask))
        return logits

    return run


def each_token(input_ids, mask):
    return np.where(mask == 1, input_ids, 99)[:, :, None].astype(np.float32)


def test_a_model_that_ignores_its_batch_does_not_shift():
    shift = measure(sum_of_own_tokens)

    assert (shift.logit, shift.probability) == (0.0, 0.0)


@pytest.mark.parametrize("seq_len", [4, 8, 12])
def test_a_shift_at_any_one_padded_length_is_found(seq_len):
    shift = measure(moved_at(lambda ids, mask: ids.shape == (1, seq_len)))

    assert shift.logit == 1.0


def test_a_shift_among_longer_mates_is_found():
    shift = measure(moved_at(lambda ids, mask: 1 < len(ids) < 32), seq_lens=[])

    assert shift.logit == 1.0


def test_a_shift_in_a_full_batch_only_is_found_with_few_rows_and_with_many():
    run = moved_at(lambda ids, mask: len(ids) == 32)

    assert measure(run).logit == 1.0
    assert measure(run, rows=ROWS[:1], probes=1, seq_lens=[]).logit == 1.0
    assert measure(run, rows=ROWS * 40, probes=90, seq_lens=[]).logit == 1.0


def test_a_batch_of_the_longest_rows_and_one_of_all_lengths_are_tried():
    shapes = []

    def run(input_ids, mask):
        if len(input_ids) == 32:
            shapes.append(sorted(mask.sum(axis=1).tolist()))
        return sum_of_own_tokens(input_ids, mask)

    measure(run, rows=[np.ones(length, dtype=np.int32) for length in range(1, 101)])

    probes = [1, 50, 100]
    assert shapes[0] == sorted([*probes, *range(72, 101)])
    assert min(shapes[1][1:]) == 1
    assert max(shapes[1]) == 100


def test_probabilities_are_of_softmax_or_of_every_label_alone():
    run = moved_at(lambda ids, mask: len(ids) > 1)

    softmax, sigmoid = measure(run), measure(run, is_multi_label=True)

    # With two labels softmax is the sigmoid of their difference.
    assert softmax.probability == pytest.approx(1 / (1 + np.exp(-1)) - 0.5)
    assert sigmoid.probability == softmax.probability

    def both(input_ids, mask):
        return run(input_ids, mask)[:, [1, 1]]

    assert measure(both).probability == 0.0
    assert measure(both, is_multi_label=True).probability == sigmoid.probability


def test_lengths_that_do_not_hold_a_text_are_skipped_and_its_own_is_no_padding():
    seen = set()

    def run(input_ids, mask):
        seen.add(input_ids.shape)
        return sum_of_own_tokens(input_ids, mask)

    measure(run, rows=ROWS[1:2], probes=1, seq_lens=[2, 5, 7])

    assert seen == {(1, 5), (1, 7), (2, 5), (32, 5)}


def test_token_logits_of_padding_are_left_out():
    assert measure(each_token).logit == 0.0


def test_an_answer_that_is_no_number_is_refused_and_is_not_no_change():
    def run(input_ids, mask):
        logits = sum_of_own_tokens(input_ids, mask)
        return logits * np.float32("nan") if len(input_ids) == 32 else logits

    with pytest.raises(ExportError, match="not finite when its batch mates change"):
        measure(run)


@pytest.mark.parametrize("changes", [{"rows": []}, {"probes": 0}])
def test_nothing_to_try_is_refused(changes):
    with pytest.raises(ValueError, match="need rows and probes"):
        measure(sum_of_own_tokens, **changes)
