"""Models by import path, good and bad; tests name them as ``own_models:NAME``."""

import random

import numpy as np
import torch
from torch import nn


class Bag(nn.Module):
    """Mean of the token vectors, a hidden layer with BatchNorm, logits."""

    def __init__(self, *, vocab_size, num_labels, width, is_token_task=False):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.norm = nn.BatchNorm1d(width)
        self.hidden = nn.Linear(width, width)
        self.classifier = nn.Linear(width, num_labels)
        self.is_token_task = is_token_task

    def forward(self, input_ids, attention_mask):
        words = self.embedding(input_ids)
        if self.is_token_task:
            vectors = self.norm(words.transpose(1, 2)).transpose(1, 2)
        else:
            mask = attention_mask.unsqueeze(2).float()
            vectors = self.norm((words * mask).sum(1) / mask.sum(1))
        return self.classifier(torch.relu(self.hidden(vectors)))


class Fixed(nn.Module):
    """Gives what a test wants of its logits."""

    def __init__(self, change, *, vocab_size, num_labels):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, num_labels)
        self.change = change

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(2)
        return self.change((self.embedding(input_ids) * mask).sum(1))


def bag(*, vocab_size, num_labels, max_seq_len, pad_token_id, width=32):
    return Bag(vocab_size=vocab_size, num_labels=num_labels, width=width)


def token_bag(*, vocab_size, num_labels, max_seq_len, pad_token_id, width=32):
    return Bag(vocab_size=vocab_size, num_labels=num_labels, width=width, is_token_task=True)


def without_hidden(*, vocab_size, num_labels, max_seq_len, pad_token_id):
    return Fixed(lambda logits: logits, vocab_size=vocab_size, num_labels=num_labels)


def drawn_elsewhere(**facts):
    model = bag(**facts)
    with torch.no_grad():
        model.classifier.bias[0] = random.random()
        model.classifier.bias[1] = float(np.random.random())
    return model


def unmasked(*, vocab_size, num_labels, max_seq_len, pad_token_id):
    model = nn.Sequential(nn.Embedding(vocab_size, num_labels))

    class Unmasked(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, input_ids, attention_mask):
            return self.inner(input_ids).mean(1)

    return Unmasked()


def raising(**facts):
    raise RuntimeError("no weights here")


def a_list(**facts):
    return [nn.Linear(2, 2)]


def frozen(**facts):
    return bag(**facts).requires_grad_(False)


def without_parameters(**facts):
    return nn.Identity()


def in_double(**facts):
    return bag(**facts).double()


def on_meta(**facts):
    return bag(**facts).to("meta")


def lazy(**facts):
    return nn.Sequential(nn.LazyLinear(3))


def one_channel(**facts):
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(1))


NUMBER = 3
