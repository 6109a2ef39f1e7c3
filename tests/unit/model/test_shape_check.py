"""What gives no logits to train on is refused before training, with both shapes."""

from dataclasses import replace

import pytest
import torch
from model_samples import MULTI_LABEL, SEQUENCE, TOKEN, build_architecture
from own_models import Bag, Fixed, unmasked
from torch import nn

from pipeline.contract.errors import TrainingError
from pipeline.model.factory import OwnModel
from pipeline.model.shape_check import check_logits
from pipeline.model.weights import build_new_model


class OneLength(nn.Module):
    """Takes texts of one length only."""

    def __init__(self, length):
        super().__init__()
        self.embedding = nn.Embedding(30, 4)
        self.classifier = nn.Linear(4 * length, 3)

    def forward(self, input_ids, attention_mask):
        return self.classifier(self.embedding(input_ids).flatten(1))


def own_architecture(**changes):
    return replace(build_architecture(factory="own_models:bag"), **changes)


def check(model, **changes):
    return check_logits(OwnModel(model), own_architecture(**changes))


def message_for(model, **changes):
    with pytest.raises(TrainingError) as caught:
        check(model, **changes)
    return str(caught.value)


def fixed(change):
    return Fixed(change, vocab_size=30, num_labels=3)


@pytest.mark.parametrize("task", [SEQUENCE, TOKEN, MULTI_LABEL])
@pytest.mark.parametrize("longest", [3, 16])
def test_the_encoder_passes_for_every_task(task, longest):
    architecture = build_architecture(task=task, max_position_embeddings=longest)
    model, _ = build_new_model(architecture, seed=1, pretrained=None)

    assert check_logits(model, architecture) == []


def test_own_models_pass_for_texts_and_words():
    text, words = (
        Bag(vocab_size=30, num_labels=3, width=8, is_token_task=flag) for flag in (False, True)
    )

    assert check(text) == check(words, task=TOKEN) == []


def test_model_and_random_numbers_stay_as_they_were():
    model = Bag(vocab_size=30, num_labels=3, width=8)
    model.norm.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(2)
    expected = torch.rand(1)
    torch.manual_seed(2)

    check(model)

    assert torch.equal(torch.rand(1), expected)
    assert (model.training, model.norm.training) == (True, False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_logits_for_texts_are_refused_for_words_with_both_shapes():
    message = message_for(Bag(vocab_size=30, num_labels=3, width=8), task=TOKEN)

    assert message.startswith(
        "model.factory: the logits of 2 rows of 5 tokens must be float [2, 5, 3], [batch, seq, "
        "num_labels] for token_classification, and are float32 [2, 3] (got 'own_models:bag')."
    )
    assert "Mend the model: forward(input_ids, attention_mask) takes int64 [batch, seq]" in message


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda logits: logits[:, :2], "must be float [2, 3], [batch, num_labels]"),
        (lambda logits: logits.argmax(1), "and are int64 [2]"),
        (lambda logits: logits.squeeze(0), "of 1 row of 1 token must be float [1, 3]"),
        (lambda logits: (logits, logits), "must return one tensor of logits"),
        (lambda logits: logits * float("nan"), "are not all finite"),
        (lambda logits: logits.detach(), "no parameter gets a gradient"),
        (lambda logits: torch.zeros(logits.shape), "no parameter gets a gradient"),
        (lambda logits: logits @ logits, "cannot run 2 rows of 5 tokens: RuntimeError: mat1"),
    ],
)
def test_other_logits_are_refused(change, problem):
    assert problem in message_for(fixed(change))


def test_a_table_smaller_than_the_vocabulary_is_refused():
    message = message_for(Bag(vocab_size=29, num_labels=3, width=8))

    assert "cannot run 2 rows of 5 tokens: IndexError" in message


@pytest.mark.parametrize(("length", "where"), [(5, "1 row of 1 token"), (16, "2 rows of 5 token")])
def test_a_model_of_one_length_is_refused(length, where):
    message = message_for(OneLength(length))

    assert f"the model cannot run {where}" in message
    assert "of any length up to model.max_seq_len" in message


def test_too_few_positions_are_refused():
    class Positions(Bag):
        def forward(self, input_ids, attention_mask):
            positions = torch.arange(input_ids.shape[1]) + 22  # A table of 30: 8 positions.
            return super().forward(input_ids, attention_mask) + self.embedding(positions).mean()

    assert "cannot run 1 row of 16 tokens: IndexError" in message_for(
        Positions(vocab_size=30, num_labels=3, width=8)
    )


def test_logits_that_padding_moves_are_noted():
    model = unmasked(vocab_size=30, num_labels=3, max_seq_len=16, pad_token_id=0)

    (note,) = check(model)

    assert note.startswith("padding moves the model's logits (by ")
    assert note.endswith("use attention_mask wherever positions are mixed")
