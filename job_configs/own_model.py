"""A model of your own, as `own_model_cpu.yaml` trains it: copy this file and change the module."""

import torch
from torch import Tensor, nn


class TextCnn(nn.Module):
    """Convolutions over words and a maximum over positions (Kim 2014, arXiv:1408.5882)."""

    def __init__(
        self, *, vocab_size: int, num_labels: int, pad_token_id: int, width: int, dropout: float
    ) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width, padding_idx=pad_token_id)
        self.convolution = nn.Conv1d(width, 2 * width, kernel_size=3, padding=1)
        self.norm = nn.BatchNorm1d(2 * width)  # GroupNorm takes its place; training says so.
        self.hidden = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(width, num_labels)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits, float [batch, num_labels]; a token task wants [batch, seq, num_labels].

        Args:
            input_ids: int64 [batch, seq].
            attention_mask: int64 [batch, seq], 1 on tokens and 0 on padding.
        """
        is_padding = attention_mask.unsqueeze(1) == 0
        words = self.embedding(input_ids).transpose(1, 2).masked_fill(is_padding, 0.0)
        features = torch.relu(self.norm(self.convolution(words)))
        # Without the mask, an answer would depend on how far its text was padded.
        text = features.masked_fill(is_padding, 0.0).amax(dim=2)
        logits: Tensor = self.classifier(self.dropout(torch.relu(self.hidden(text))))
        return logits


def build_text_cnn(
    *,
    vocab_size: int,
    num_labels: int,
    max_seq_len: int,
    pad_token_id: int,
    width: int = 64,
    dropout: float = 0.1,
) -> nn.Module:
    """Return the model; the first four arguments come from the job, the rest from its file.

    ``max_seq_len`` is for models with a table of positions; this one has none.
    """
    return TextCnn(
        vocab_size=vocab_size,
        num_labels=num_labels,
        pad_token_id=pad_token_id,
        width=width,
        dropout=dropout,
    )
