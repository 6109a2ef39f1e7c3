"""Settings of the optimisation."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.config.fields import Count, PositiveFloat, Share
from pipeline.contract.settings import Settings


class AugmentationSettings(Settings):
    """Changes to the training rows' tokens, drawn anew for each row and epoch."""

    token_dropout: Share = 0.0
    """Share of tokens, each drawn alone, that become ``[MASK]``."""
    span_masking: Share = 0.0
    """Share of tokens that become ``[MASK]`` in spans of neighbouring tokens."""
    mean_span_tokens: Annotated[float, Field(ge=1.0, le=5.0, strict=False)] = 3.0
    """Mean length of such a span, 1 to 5 (geometric, at most 10 tokens; SpanBERT: 3.8)."""

    @property
    def is_on(self) -> bool:
        """Whether any token is masked."""
        return self.token_dropout > 0.0 or self.span_masking > 0.0


class TrainSettings(Settings):
    """The optimisation."""

    epochs: Count = 3
    """Passes over the training rows."""
    global_batch: Count = 32
    """Rows behind one optimiser step, over all workers."""
    max_batch_tokens: Count | None = None
    """Padded tokens behind one optimiser step at most, over all workers; null lets only the
    rows count. A longer row is a step of its own. base_lr still scales with global_batch."""
    micro_batch: Count = 32
    """Rows in one forward pass of one worker; only a slicing choice, see memory."""
    base_lr: PositiveFloat = 3e-4
    """Peak learning rate for a global batch of 256; used: base_lr × global_batch / 256."""
    min_lr: Annotated[float, Field(ge=0.0, strict=False)] = 0.0
    """Learning rate at the end of the cosine."""
    warmup_share: Share = 0.05
    """Share of all steps with a linearly growing learning rate."""
    weight_decay: Annotated[float, Field(ge=0.0, strict=False)] = 0.01
    """AdamW's decay of matrices; biases and LayerNorm are spared."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are scaled down to this L2 norm."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Autocast type of the forward pass; fp16 uses a dynamic loss scale and needs a GPU."""
    loss_scale: PositiveFloat = 65536.0
    """First loss scale (fp16)."""
    loss_scale_growth_steps: Count = 2000
    """Good steps after which the loss scale doubles (fp16)."""
    checkpoint_every_steps: Count = 500
    """Steps between rolling checkpoints."""
    keep_checkpoints: Count = 3
    """Rolling checkpoints kept."""
    permanent_every_steps: Count = 5000
    """Steps between checkpoints that are never deleted."""
    validate_every_steps: Annotated[int, Field(ge=0)] | None = None
    """Steps between measurements on the validation rows; null measures at the end of each
    epoch, 0 never."""
    best_metric: Literal["loss", "accuracy", "macro_f1", "entity_f1"] = "loss"
    """Figure of the validation rows by which the best checkpoint is chosen; entity_f1 needs
    BIO word labels."""
    early_stopping_patience: Count | None = None
    """Measurements in a row without a better best_metric after which training ends; null
    trains all epochs."""
    final_weights: Literal["last", "best"] = "last"
    """Which weights evaluate and export take: of the last step or of the best checkpoint."""
    longest_first: bool = True
    """Run the longest batch first, so that memory trouble shows in the first second."""
    augmentation: AugmentationSettings = AugmentationSettings()
    """Token dropout and span masking; off by default."""
    loader_workers: Annotated[int, Field(ge=0)] = 0
    """Processes that read and pad batches ahead for each worker; 0 reads in the loop.

    Each takes some seconds to start and changes nothing learned.
    """
    tensorboard: bool = True
    """Write TensorBoard event files into the checkpoint folder."""

    @model_validator(mode="after")
    def _demand_possible_pairs(self) -> "TrainSettings":
        peak = self.base_lr * self.global_batch / 256
        if self.min_lr > peak:
            raise ValueError(
                f"min_lr {self.min_lr:g} is over the peak learning rate {peak:g} "
                "(base_lr × global_batch / 256). Lower min_lr or raise base_lr."
            )
        if self.micro_batch > self.global_batch:
            raise ValueError(
                f"micro_batch {self.micro_batch} is over global_batch {self.global_batch}. "
                "Lower micro_batch or raise global_batch."
            )
        needs_figures = self.early_stopping_patience is not None or self.final_weights == "best"
        if self.validate_every_steps == 0 and needs_figures:
            raise ValueError(
                "early_stopping_patience and final_weights best need measurements, but "
                "validate_every_steps is 0. Set it to null or a number of steps."
            )
        return self
