"""The shape of a model: read from a Hugging Face config.json or from the job's settings."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pipeline.config import ModelSettings, Task, find_factory_file, resolve_location
from pipeline.contract.errors import ConfigError, WeightsError
from pipeline.contract.folder import read_json, sha256_file

HF_CONFIG_NAME = "config.json"
_BERT_LAYER_NORM_EPS = 1e-12
_DEMANDED = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
"""What the encoder computes; a config that asks for anything else is refused."""
_DEFAULTS = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
"""What Hugging Face's BertConfig means by a key that is not there."""

_NO_ENCODER: dict[str, Any] = {
    "hidden_size": 0,
    "num_layers": 0,
    "num_heads": 0,
    "intermediate_size": 0,
    "type_vocab_size": 0,
    "layer_norm_eps": 0.0,
    "dropout": 0.0,
    "pooling": "cls",
}
"""Of a model by import path: the same whatever the job says of the encoder, and so the hash."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Everything that decides the tensors of a model; stored in the checkpoint's manifest.

    Of a model by import path the encoder's sizes are 0; the positions are those of its longest
    text.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    dropout: float
    pooling: Literal["cls", "mean"]
    num_labels: int
    task: str
    """A :class:`pipeline.config.Task` as text."""
    pad_token_id: int
    sep_token_id: int | None = None
    """Ends the first text of a pair; None when the model takes single texts."""
    factory: str | None = None
    """Import path ``package.module:function`` of a model of the user's own; None: the encoder."""
    factory_arguments: dict[str, bool | int | float | str] = field(default_factory=dict)
    factory_sha256: str | None = None
    """Hash of the factory's source file when the training was planned."""

    @property
    def takes_pairs(self) -> bool:
        """Whether a row is ``[CLS] a [SEP] b [SEP]`` and its second part gets a type of its own."""
        return self.sep_token_id is not None

    @property
    def multi_hot_size(self) -> int | None:
        """Labels of a multi-label task; None where a text or word has exactly one label."""
        return self.num_labels if self.task == Task.MULTI_LABEL.value else None

    @property
    def is_token_task(self) -> bool:
        """Whether every token gets logits."""
        return self.task == Task.TOKEN.value

    @property
    def has_pooler(self) -> bool:
        """Whether BERT's dense layer over [CLS] is part of the model."""
        return self.pooling == "cls" and not self.is_token_task


def read_hf_architecture(
    folder: Path,
    settings: ModelSettings,
    *,
    task: str,
    num_labels: int,
    pad_token_id: int,
    sep_token_id: int | None = None,
) -> Architecture:
    """Return the architecture of a Hugging Face BERT folder under a job's head.

    Raises:
        MissingFileError: there is no config.json.
        WeightsError: config.json asks for something that this encoder does not compute,
            lacks a size, or has one token type only and is to take pairs.
        ConfigError: ``max_seq_len`` is over the model's positions.
    """
    path = folder / HF_CONFIG_NAME
    values = read_json(path)
    if not isinstance(values, dict):
        raise WeightsError("config.json is not a JSON object", place=str(path))
    for key, demanded in _DEMANDED.items():
        value = values.get(key, _DEFAULTS.get(key))
        if value != demanded:
            raise WeightsError(
                f"{key} must be {demanded!r}",
                place=str(path),
                value=value,
                remedy="Name the folder of a BERT encoder in model.pretrained.",
            )
    architecture = Architecture(
        vocab_size=_size(values, "vocab_size", path),
        hidden_size=_size(values, "hidden_size", path),
        num_layers=_size(values, "num_hidden_layers", path),
        num_heads=_size(values, "num_attention_heads", path),
        intermediate_size=_size(values, "intermediate_size", path),
        max_position_embeddings=_size(values, "max_position_embeddings", path),
        type_vocab_size=_size(values, "type_vocab_size", path),
        layer_norm_eps=float(values.get("layer_norm_eps", _BERT_LAYER_NORM_EPS)),
        dropout=settings.dropout,
        pooling=settings.pooling,
        num_labels=num_labels,
        task=task,
        pad_token_id=pad_token_id,
        sep_token_id=sep_token_id,
    )
    _demand_possible_sizes(architecture, path)
    _demand_positions(architecture, settings.max_seq_len)
    return architecture


def build_random_architecture(
    settings: ModelSettings,
    *,
    vocab_size: int,
    task: str,
    num_labels: int,
    pad_token_id: int,
    sep_token_id: int | None = None,
) -> Architecture:
    """Return the architecture of a random start: BERT's proportions at the job's sizes.

    Of a model by import path: what it is called with, and the hash of its file. It is not run.

    Raises:
        ConfigError: the module of ``settings.factory`` cannot be found.
    """
    architecture = Architecture(
        vocab_size=vocab_size,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        intermediate_size=4 * settings.hidden_size,
        max_position_embeddings=settings.max_seq_len,
        type_vocab_size=2,
        layer_norm_eps=_BERT_LAYER_NORM_EPS,
        dropout=settings.dropout,
        pooling=settings.pooling,
        num_labels=num_labels,
        task=task,
        pad_token_id=pad_token_id,
        sep_token_id=sep_token_id,
    )
    if settings.factory is None:
        return architecture
    return replace(
        architecture,
        **_NO_ENCODER,
        factory=settings.factory,
        factory_arguments=dict(settings.factory_arguments),
        factory_sha256=sha256_file(find_factory_file(settings.factory)),
    )


def find_pretrained(settings: ModelSettings) -> Path | None:
    """Return the folder that gives the first weights, None where they start from the seed.

    A model by import path starts from the seed: it takes only the folder's tokenizer.

    Raises:
        ConfigError: the package of a ``package://`` location is not installed.
    """
    if settings.pretrained is None or settings.factory is not None:
        return None
    return Path(resolve_location(settings.pretrained))


def _size(values: dict[str, Any], key: str, path: Path) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise WeightsError(
            f"{key} must be a whole number over 0",
            place=str(path),
            value=value,
            remedy="Copy the config.json that belongs to these weights.",
        )
    return value


def _demand_possible_sizes(architecture: Architecture, path: Path) -> None:
    if architecture.takes_pairs and architecture.type_vocab_size < 2:
        raise WeightsError(
            "type_vocab_size must be 2 or more for pairs of texts",
            place=str(path),
            value=architecture.type_vocab_size,
            remedy="Name a model with two token types in model.pretrained.",
        )
    if architecture.hidden_size % architecture.num_heads:
        raise WeightsError(
            f"hidden_size {architecture.hidden_size} is not a multiple of num_attention_heads",
            place=str(path),
            value=architecture.num_heads,
        )


def _demand_positions(architecture: Architecture, max_seq_len: int) -> None:
    positions = architecture.max_position_embeddings
    if max_seq_len > positions:
        raise ConfigError(
            f"the pretrained model has {positions} positions",
            place="model.max_seq_len",
            value=max_seq_len,
            remedy=f"Set model.max_seq_len to {positions} or less.",
        )
