"""Settings of the encoder and its head."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.config.fields import Count
from pipeline.contract.settings import Settings


class ModelSettings(Settings):
    """The encoder and its head."""

    pretrained: str | None = None
    """Hugging Face-format folder (or ``package://NAME/PATH``); null starts from random."""
    max_seq_len: Annotated[int, Field(ge=3, le=8192)] = 128
    """Tokens of a text that the model sees, special tokens included."""
    pooling: Literal["cls", "mean"] = "cls"
    """How token vectors become one text vector: BERT's pooled [CLS], or the mean."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0, strict=False)] = 0.1
    """Dropout in the encoder and before the head."""
    vocab_size: Annotated[int, Field(ge=100)] = 8192
    """Entries of the WordPiece vocabulary trained on the corpus (random start only)."""
    hidden_size: Count = 128
    """Width (random start only)."""
    num_layers: Count = 2
    """Encoder layers (random start only)."""
    num_heads: Count = 4
    """Attention heads (random start only)."""
    factory: str | None = None
    """Import path ``package.module:function`` of a model of your own; null takes the encoder.

    It is called with ``vocab_size``, ``num_labels``, ``max_seq_len``, ``pad_token_id`` and
    factory_arguments, and returns a torch module: ``forward(input_ids, attention_mask)`` gives
    logits. The encoder's sizes above then mean nothing; the tokenizer is still pretrained's or
    the corpus's.
    """
    factory_arguments: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Further arguments of factory, by name."""

    @model_validator(mode="after")
    def _split_width_evenly(self) -> "ModelSettings":
        if self.pretrained is None and self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_heads "
                f"{self.num_heads}. Change one of them."
            )
        return self
