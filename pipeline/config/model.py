"""Settings of the encoder and its head, or of a model of the user's own."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pipeline.config.fields import Count
from pipeline.contract.settings import Settings, read_exponent_number

FACTORY_FACTS = ("vocab_size", "num_labels", "max_seq_len", "pad_token_id")
"""What every factory is called with, by these names."""
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

FactoryArgument = Annotated[bool | int | float | str, BeforeValidator(read_exponent_number)]


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
    logits. The module is sought where Python finds packages and in the working directory; that
    file is run as it stands, so take a job file that names one only from people you would take
    a program from. The encoder's sizes above then mean nothing; pretrained gives only the
    tokenizer, and export does not fuse.
    """
    factory_arguments: dict[str, FactoryArgument] = Field(default_factory=dict)
    """Further arguments of factory, by name; text such as 1e-4 becomes a number."""

    @field_validator("factory")
    @classmethod
    def _demand_import_path(cls, given: str | None) -> str | None:
        if given is not None and not _IMPORT_PATH.fullmatch(given):
            raise ValueError(
                f"{given!r} is no import path. Write package.module:function with dots between "
                "modules and one colon before the function, such as job_configs.own_model:build."
            )
        return given

    @model_validator(mode="after")
    def _demand_possible_pairs(self) -> "ModelSettings":
        takes_sizes = self.pretrained is None and self.factory is None
        if takes_sizes and self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_heads "
                f"{self.num_heads}. Change one of them."
            )
        if self.factory_arguments and self.factory is None:
            raise ValueError(
                "factory_arguments are given without factory. Set factory or take them out."
            )
        if given := sorted(self.factory_arguments.keys() & set(FACTORY_FACTS)):
            raise ValueError(
                f"factory_arguments holds {', '.join(given)}, which the factory is given anyway. "
                "Take it out."
            )
        return self
