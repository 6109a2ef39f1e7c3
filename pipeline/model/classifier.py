"""The whole model: encoder, pooling and one linear head.

Dimensions: B rows, S tokens, D width, C labels.
"""

import torch
from torch import Tensor, nn

from pipeline.model.architecture import Architecture
from pipeline.model.dropout import Dropout
from pipeline.model.encoder import Embeddings, Encoder


class Pooler(nn.Module):
    """BERT's text vector: ``tanh(dense([CLS]))``."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the projection."""
        super().__init__()
        self.dense = nn.Linear(architecture.hidden_size, architecture.hidden_size)

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        """Return text vectors, float ``[B, D]``."""
        return torch.tanh(self.dense(hidden_BSD[:, 0]))


class TextClassifier(nn.Module):
    """Ids and mask to logits."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the modules; their values are set by :mod:`pipeline.model.weights`."""
        super().__init__()
        self.architecture = architecture
        self.embeddings = Embeddings(architecture)
        self.encoder = Encoder(architecture)
        self.pooler = Pooler(architecture) if architecture.has_pooler else None
        self.dropout = Dropout(architecture.dropout)
        self.classifier = nn.Linear(architecture.hidden_size, architecture.num_labels)

    def forward(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """Return logits, float32 ``[B, C]``, or ``[B, S, C]`` for token classification.

        Args:
            input_ids_BS: int64 ``[B, S]``.
            attention_mask_BS: int64 ``[B, S]``, 1 on tokens and 0 on padding.
        """
        hidden_BSD = self.encoder(self.embeddings(input_ids_BS), attention_mask_BS)
        if self.architecture.is_token_task:
            vectors = hidden_BSD
        elif self.pooler is not None:
            vectors = self.pooler(hidden_BSD)
        else:
            vectors = pool_mean(hidden_BSD, attention_mask_BS)
        logits: Tensor = self.classifier(self.dropout(vectors))
        return logits.float()


def pool_mean(hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
    """Return the mean of each row's token vectors, padding left out, float ``[B, D]``."""
    mask_BS1 = attention_mask_BS.unsqueeze(2).to(hidden_BSD.dtype)
    return (hidden_BSD * mask_BS1).sum(dim=1) / mask_BS1.sum(dim=1)
