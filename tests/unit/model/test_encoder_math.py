import math

import numpy as np
import pytest
import torch
from model_samples import SEQUENCE, TOKEN, build_rough_model

from pipeline.contract.batching import pad_rows
from pipeline.model.encoder import build_mask_bias, build_token_types

SEP = 3
ROWS = [[2, 5, 9, 3], [2, 7, 3], [2, 11, 12, 13, 14, 8, 3]]
PAIRS = [[2, 5, 3, 9, 3], [2, 7, 8, 3, 7, 3], [2, 3, 11, 12, 13, 3], [2, 5, 9]]
HEADS = [(SEQUENCE, "cls"), (SEQUENCE, "mean"), (TOKEN, "cls")]


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(weights, name, x):
    centred = x - x.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def attention(weights, name, x, num_heads):
    query, key, value = (linear(weights, f"{name}.{part}", x) for part in ("query", "key", "value"))
    width = x.shape[1] // num_heads
    outputs = []
    for head in range(num_heads):
        part = slice(head * width, (head + 1) * width)
        scores = query[:, part] @ key[:, part].T / math.sqrt(width)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        outputs.append(powers / powers.sum(-1, keepdims=True) @ value[:, part])
    return np.concatenate(outputs, axis=1)


def token_types(ids, sep_token_id):
    first = ids.index(sep_token_id) + 1 if sep_token_id in ids else len(ids)
    return [0] * first + [1] * (len(ids) - first)


def bert(model, ids):
    """BERT of one unpadded row, written from the paper in numpy, float64."""
    shape = model.architecture
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + weights["embeddings.token_type_embeddings.weight"][token_types(ids, shape.sep_token_id)]
    x = layer_norm(weights, "embeddings.LayerNorm", x)
    for index in range(shape.num_layers):
        name = f"encoder.layer.{index}"
        context = attention(weights, f"{name}.attention.self", x, shape.num_heads)
        attended = linear(weights, f"{name}.attention.output.dense", context)
        x = layer_norm(weights, f"{name}.attention.output.LayerNorm", attended + x)
        inner = gelu(linear(weights, f"{name}.intermediate.dense", x))
        x = layer_norm(
            weights, f"{name}.output.LayerNorm", linear(weights, f"{name}.output.dense", inner) + x
        )
    if shape.task == SEQUENCE:
        is_cls = shape.pooling == "cls"
        x = np.tanh(linear(weights, "pooler.dense", x[0])) if is_cls else x.mean(0)
    return linear(weights, "classifier", x)


def run_padded(model, rows, *, pad_value=0, seq_len=None):
    input_ids, mask = pad_rows(rows, pad_value=pad_value, seq_len=seq_len)
    with torch.no_grad():
        return model(torch.from_numpy(input_ids), torch.from_numpy(mask)).numpy()


@pytest.mark.parametrize(("task", "pooling"), HEADS)
def test_logits_are_those_of_bert_written_in_numpy(task, pooling):
    model = build_rough_model(task=task, pooling=pooling)

    for ids in ROWS:
        np.testing.assert_allclose(run_padded(model, [ids])[0], bert(model, ids), atol=1e-4)


@pytest.mark.parametrize(("task", "pooling"), HEADS)
def test_padded_and_unpadded_rows_agree_within_1e_5(task, pooling):
    model = build_rough_model(task=task, pooling=pooling)

    together = run_padded(model, ROWS, seq_len=16)

    for ids, logits in zip(ROWS, together, strict=True):
        alone = run_padded(model, [ids])[0]
        if task == TOKEN:
            logits = logits[: len(ids)]
        np.testing.assert_allclose(logits, alone, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "pooling"), HEADS[:2])
def test_pairs_are_scored_as_bert_scores_them_with_both_token_types(task, pooling):
    model = build_rough_model(task=task, pooling=pooling, sep_token_id=SEP)

    for ids in PAIRS:
        np.testing.assert_allclose(run_padded(model, [ids])[0], bert(model, ids), atol=1e-4)


def test_padded_and_unpadded_pairs_agree_within_1e_5():
    model = build_rough_model(pooling="mean", sep_token_id=SEP)

    together = run_padded(model, PAIRS, seq_len=16)

    for ids, logits in zip(PAIRS, together, strict=True):
        np.testing.assert_allclose(logits, run_padded(model, [ids])[0], atol=1e-5, rtol=0)


def test_token_types_change_after_the_first_sep_and_never_back():
    ids = torch.tensor(
        [[2, 5, 3, 9, 8, 3, 0, 0], [2, 3, 3, 3, 5, 3, 0, 0], [2, 5, 5, 5, 5, 5, 5, 5]]
    )

    types = build_token_types(ids, SEP)

    assert types.tolist() == [
        [0, 0, 0, 1, 1, 1, 1, 1],
        [0, 0, 1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert types.dtype is torch.int64


def test_single_texts_score_the_same_to_the_bit_whether_or_not_pairs_are_known():
    single, pairs = (build_rough_model(sep_token_id=sep) for sep in (None, SEP))

    np.testing.assert_array_equal(run_padded(single, ROWS), run_padded(pairs, ROWS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ids_under_the_mask_change_nothing_in_any_precision(dtype):
    model = build_rough_model(pooling="mean")

    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
        zeros, noise = (run_padded(model, ROWS, pad_value=value) for value in (0, 17))

    np.testing.assert_array_equal(zeros, noise)
    assert np.isfinite(zeros).all()
    assert zeros.dtype == np.float32


def test_mask_bias_silences_padding_in_half_precision():
    bias = build_mask_bias(torch.tensor([[1, 1, 0]]), torch.bfloat16)

    assert bias.shape == (1, 1, 1, 3)
    assert torch.softmax(bias.float(), dim=-1).flatten().tolist() == [0.5, 0.5, 0.0]


def test_token_task_gives_every_token_logits_and_has_no_pooler():
    model = build_rough_model(task=TOKEN)

    assert run_padded(model, ROWS).shape == (3, 7, 3)
    assert model.pooler is None


def test_dropout_works_in_training_only():
    model = build_rough_model(dropout=0.5)

    calm = [run_padded(model, ROWS) for _ in range(2)]
    model.train()
    noisy = [run_padded(model, ROWS) for _ in range(2)]

    np.testing.assert_array_equal(*calm)
    assert not np.array_equal(*noisy)
