"""The example that people copy is a model that can be trained, without a remark."""

from pathlib import Path

import pytest
import torch

from pipeline.config import load_job
from pipeline.model.architecture import build_random_architecture
from pipeline.model.shape_check import check_logits
from pipeline.model.weights import build_new_model

FILE = Path(__file__).parents[3] / "job_configs" / "own_model_cpu.yaml"


@pytest.fixture
def architecture():
    settings = load_job(FILE).settings.model
    return build_random_architecture(
        settings, vocab_size=50, task="sequence_classification", num_labels=2, pad_token_id=0
    )


def test_the_examples_model_passes_every_check_and_padding_moves_nothing(architecture):
    model, notes = build_new_model(architecture, seed=1, pretrained=None)

    assert check_logits(model, architecture) == []
    assert "in norm:" in notes[1]
    assert model.model.embedding.embedding_dim == 64


def test_the_examples_model_gives_a_text_the_same_logits_in_any_batch(architecture):
    model = build_new_model(architecture, seed=1, pretrained=None)[0].eval()
    ids = torch.tensor([[5, 6, 7, 0, 0, 0], [9, 8, 7, 6, 5, 4]])

    together = model(ids, (ids != 0).long())

    alone = model(ids[:1, :3], torch.ones(1, 3, dtype=torch.int64))
    torch.testing.assert_close(together[:1], alone)
