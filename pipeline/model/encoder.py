"""A BERT-compatible post-LayerNorm encoder; modules bear Hugging Face's names, without `bert.`.

Devlin et al. 2019, "BERT" (https://arxiv.org/abs/1810.04805); the layer is that of Vaswani
et al. 2017, section 3.1, with GELU.

Dimensions: B rows, S tokens, D width, H heads, K width of a head (D = H * K), F inner width.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.model.architecture import Architecture
from pipeline.model.dropout import Dropout

_MASKED_SCORE = -10000.0
"""Added to the scores of padding: exp() of it is 0 in fp32, and bf16 and fp16 can hold it."""


class Embeddings(nn.Module):
    """Word, position and token-type embeddings, summed and normalised."""

    position_ids: Tensor

    def __init__(self, architecture: Architecture) -> None:
        """Make the tables."""
        super().__init__()
        width = architecture.hidden_size
        self.word_embeddings = nn.Embedding(architecture.vocab_size, width)
        self.position_embeddings = nn.Embedding(architecture.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(architecture.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=architecture.layer_norm_eps)
        self.dropout = Dropout(architecture.dropout)
        self.sep_token_id = architecture.sep_token_id
        positions = torch.arange(architecture.max_position_embeddings).unsqueeze(0)
        self.register_buffer("position_ids", positions, persistent=False)

    def forward(self, input_ids_BS: Tensor) -> Tensor:
        """Return hidden states, float ``[B, S, D]``."""
        position_ids_1S = self.position_ids[:, : input_ids_BS.size(1)]
        words_BSD = self.word_embeddings(input_ids_BS)
        token_types_BS = build_token_types(input_ids_BS, self.sep_token_id)
        types_BSD = self.token_type_embeddings(token_types_BS)
        positions_1SD = self.position_embeddings(position_ids_1S)
        hidden_BSD: Tensor = self.dropout(self.LayerNorm(words_BSD + types_BSD + positions_1SD))
        return hidden_BSD


class SelfAttention(nn.Module):
    """Scaled dot-product attention over all heads, with separate q, k and v."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the three projections."""
        super().__init__()
        width = architecture.hidden_size
        self.num_heads = architecture.num_heads
        self.head_width = width // architecture.num_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dropout = Dropout(architecture.dropout)

    def forward(self, hidden_BSD: Tensor, mask_bias_B11S: Tensor) -> Tensor:
        """Return the attended values, float ``[B, S, D]``."""
        query_BHSK = self._split(self.query(hidden_BSD))
        key_BHSK = self._split(self.key(hidden_BSD))
        value_BHSK = self._split(self.value(hidden_BSD))
        # ONNX Runtime fuses exactly this chain: MatMul, Div, Add, Softmax, MatMul. On two CPU
        # cores scaled_dot_product_attention trained no faster (README), so there is one path.
        scores_BHSS = query_BHSK.matmul(key_BHSK.transpose(-1, -2)) / math.sqrt(self.head_width)
        weights_BHSS = functional.softmax(scores_BHSS + mask_bias_B11S, dim=-1)
        context_BHSK: Tensor = self.dropout(weights_BHSS).matmul(value_BHSK)
        context_BSHK = context_BHSK.permute(0, 2, 1, 3).contiguous()
        return context_BSHK.view(context_BSHK.size(0), -1, self.num_heads * self.head_width)

    def _split(self, projected_BSD: Tensor) -> Tensor:
        rows = projected_BSD.size(0)
        split_BSHK = projected_BSD.view(rows, -1, self.num_heads, self.head_width)
        return split_BSHK.permute(0, 2, 1, 3)


class DenseResidual(nn.Module):
    """Projection, dropout, residual and LayerNorm: the end of both halves of a layer."""

    def __init__(self, architecture: Architecture, *, input_size: int) -> None:
        """Make the projection from ``input_size`` to the model's width."""
        super().__init__()
        width = architecture.hidden_size
        self.dense = nn.Linear(input_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=architecture.layer_norm_eps)
        self.dropout = Dropout(architecture.dropout)

    def forward(self, inner: Tensor, residual_BSD: Tensor) -> Tensor:
        """Return ``LayerNorm(dropout(dense(inner)) + residual)``, float ``[B, S, D]``."""
        hidden_BSD: Tensor = self.LayerNorm(self.dropout(self.dense(inner)) + residual_BSD)
        return hidden_BSD


class Attention(nn.Module):
    """Self-attention and its residual."""

    def __init__(self, architecture: Architecture) -> None:
        """Make both parts."""
        super().__init__()
        self.self = SelfAttention(architecture)
        self.output = DenseResidual(architecture, input_size=architecture.hidden_size)

    def forward(self, hidden_BSD: Tensor, mask_bias_B11S: Tensor) -> Tensor:
        """Return hidden states, float ``[B, S, D]``."""
        context_BSD = self.self(hidden_BSD, mask_bias_B11S)
        attended_BSD: Tensor = self.output(context_BSD, hidden_BSD)
        return attended_BSD


class Intermediate(nn.Module):
    """The inner projection of the feed-forward half."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the projection."""
        super().__init__()
        self.dense = nn.Linear(architecture.hidden_size, architecture.intermediate_size)

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        """Return ``gelu(dense(hidden))``, the exact GELU, float ``[B, S, F]``."""
        return functional.gelu(self.dense(hidden_BSD))


class Layer(nn.Module):
    """One encoder layer."""

    def __init__(self, architecture: Architecture) -> None:
        """Make attention and feed-forward."""
        super().__init__()
        self.attention = Attention(architecture)
        self.intermediate = Intermediate(architecture)
        self.output = DenseResidual(architecture, input_size=architecture.intermediate_size)

    def forward(self, hidden_BSD: Tensor, mask_bias_B11S: Tensor) -> Tensor:
        """Return hidden states, float ``[B, S, D]``."""
        attended_BSD = self.attention(hidden_BSD, mask_bias_B11S)
        inner_BSF = self.intermediate(attended_BSD)
        output_BSD: Tensor = self.output(inner_BSF, attended_BSD)
        return output_BSD


class Encoder(nn.Module):
    """All layers, one after the other."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the layers."""
        super().__init__()
        self.layer = nn.ModuleList(Layer(architecture) for _ in range(architecture.num_layers))

    def forward(self, hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """Return hidden states, float ``[B, S, D]``; those of padding mean nothing."""
        mask_bias_B11S = build_mask_bias(attention_mask_BS, hidden_BSD.dtype)
        for layer in self.layer:
            hidden_BSD = layer(hidden_BSD, mask_bias_B11S)
        return hidden_BSD


def build_token_types(input_ids_BS: Tensor, sep_token_id: int | None) -> Tensor:
    """Return the token types, int64 ``[B, S]``: 0 up to a row's first [SEP], 1 after it.

    The first [SEP] itself is of type 0 (Devlin et al. 2019, section 3, figure 2). Without a
    ``sep_token_id`` (single texts) every token is of type 0.

    Example: ``[CLS] a [SEP] b c [SEP]`` -> ``[0, 0, 0, 1, 1, 1]``.
    """
    if sep_token_id is None:
        return torch.zeros_like(input_ids_BS)
    is_sep_BS = (input_ids_BS == sep_token_id).to(torch.int64)
    seps_before_BS = is_sep_BS.cumsum(dim=1) - is_sep_BS
    return seps_before_BS.clamp(max=1)


def build_mask_bias(attention_mask_BS: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to the scores, ``[B, 1, 1, S]``: 0 on tokens, -10000 on padding."""
    mask_B11S = attention_mask_BS.unsqueeze(1).unsqueeze(2).to(dtype)
    return (1.0 - mask_B11S) * _MASKED_SCORE
