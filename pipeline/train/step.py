"""One optimiser step in plain torch: accumulate, sum over ranks, clip, update.

The gradient is that of one big batch: every micro-batch's losses are divided by the weight
of the whole global batch (rows, or labelled tokens for token labels), then gradients add up
over micro-batches and over ranks.

A row of C labels of its own (multi-label) loses the mean over them of the binary cross-entropy,
``1/C * sum_c -(y_c * log s_c + (1 - y_c) * log(1 - s_c))`` with ``s_c = sigmoid(logit_c)``: the
mean, so that losses stay on the scale of the other tasks however many labels there are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.config import TrainSettings
from pipeline.contract.errors import NotFiniteError
from pipeline.contract.tokenization import IGNORED_LABEL
from pipeline.train.group import Group
from pipeline.train.micro_batches import MicroBatch
from pipeline.train.out_of_memory import (
    FailedPass,
    describe_failure,
    free_caches,
    gather_shortages,
    is_out_of_memory,
)

Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step did, over all ranks."""

    loss: float
    """Mean over the global batch's rows (labelled tokens)."""
    grad_norm: float
    """L2 norm before clipping; not finite on a skipped step."""
    tokens: int
    """Tokens without padding."""
    padded_tokens: int
    """Tokens with padding."""
    loss_scale: float
    """Scale that the step ran under; 1 without a scaler."""
    is_skipped: bool
    """True when fp16 gradients overflowed and the weights stayed."""


class Optimisation:
    """A model with its gradients, optimiser and loss scale."""

    def __init__(self, model: nn.Module, settings: TrainSettings, *, device: torch.device) -> None:
        """Move the model to the device and make the optimiser's groups."""
        self.model = model.to(device)
        self.max_grad_norm = settings.max_grad_norm
        self.autocast_dtype = autocast_dtype(settings.precision)
        self.device = device
        self.gradients = _share_one_buffer(list(model.parameters()))
        self.optimizer = torch.optim.AdamW(
            decay_groups(model, weight_decay=settings.weight_decay), fused=True
        )
        self.scaler = torch.amp.GradScaler(
            device.type,
            init_scale=settings.loss_scale,
            growth_factor=2.0,
            backoff_factor=0.5,
            growth_interval=settings.loss_scale_growth_steps,
            enabled=settings.precision == "fp16",
        )

    def allocate_optimizer(self) -> None:
        """Allocate what AdamW keeps, unless a checkpoint brought it; no weight changes."""
        if self.optimizer.state:
            return
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self.set_lr(0.0)
        # Without rate and gradients a step changes nothing but its own count.
        self.gradients.zero_()
        self.optimizer.step()
        for kept in self.optimizer.state.values():
            kept["step"].zero_()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr


def autocast_dtype(precision: Precision) -> torch.dtype:
    """Return the type that matrix products of the forward pass run in."""
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def decay_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, object]]:
    """Return AdamW's two groups: matrices decay, biases and the weights of norms do not.

    The latter are told by their one dimension. Frozen parameters are in neither.
    """
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            (spared if parameter.ndim < 2 else decayed).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]


def train_step(
    state: Optimisation, micro_batches: Sequence[MicroBatch], *, group: Group
) -> StepResult:
    """Run one step on this rank's part of a global batch (maybe none) and update the weights.

    Every rank must call it; all get the same result and the same weights. The device is waited
    for twice: for the figures, which tell whether all gradients are there, and for the norm.

    Args:
        state: what is trained.
        micro_batches: best on the CPU; each is moved to the device for its own pass.
        group: this worker's rank and its sums over all ranks.

    Raises:
        OutOfMemory: a rank's passes did not fit into its memory. On every rank, before the
            weights change; what the passes allocated is freed.
        NotFiniteError: the loss or a gradient is not finite; it names the rows. On every rank,
            before the weights change.
    """
    scale = state.scaler.scale(torch.ones((), device=state.device))
    state.gradients.zero_()
    losses, failed = _accumulate_all(state, micro_batches, group=group)
    figures = _sum_figures(state, micro_batches, losses=losses, failed=failed, group=group)
    if figures[3]:
        raise gather_shortages(failed, group)
    if not math.isfinite(figures[0]):
        raise _not_finite("the loss is not finite", micro_batches, losses=losses, group=group)
    group.sum_(state.gradients)
    state.scaler.unscale_(state.optimizer)
    grads_norm = nn.utils.clip_grad_norm_(state.model.parameters(), state.max_grad_norm)
    norm, scale_then = torch.stack([grads_norm, scale]).tolist()
    if not math.isfinite(norm) and not state.scaler.is_enabled():
        raise _not_finite("a gradient is not finite", micro_batches, losses=None, group=group)
    state.scaler.step(state.optimizer)
    state.scaler.update()
    return StepResult(
        loss=figures[0],
        grad_norm=norm,
        tokens=int(figures[1]),
        padded_tokens=int(figures[2]),
        loss_scale=scale_then,
        is_skipped=not math.isfinite(norm),
    )


def row_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each row's summed cross-entropy, float32 ``[batch]``.

    Args:
        logits: float32 ``[batch, num_labels]`` or ``[batch, seq, num_labels]``.
        labels: int64, the logits' shape without the last axis, -100 counts for nothing; or
            multi-hot float32 of the logits' shape.
    """
    if labels.is_floating_point():
        losses = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return losses.mean(dim=1)
    losses = functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=IGNORED_LABEL
    )
    return losses.view(len(labels), -1).sum(dim=1)


def _accumulate_all(
    state: Optimisation, micro_batches: Sequence[MicroBatch], *, group: Group
) -> tuple[list[Tensor], FailedPass | None]:
    """Add up the gradients of all passes, or of those before the one that did not fit."""
    weight = torch.tensor(float(sum(m.num_labelled for m in micro_batches)), device=state.device)
    group.sum_(weight)
    weight.clamp_(min=1.0)
    losses: list[Tensor] = []
    failed = None
    for micro in micro_batches:
        try:
            losses.append(_accumulate(state, micro.to(state.device), weight=weight))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failed = describe_failure(error, micro, rank=group.rank, device=state.device)
        if failed:
            # Only now, without the error, nothing holds the tensors of the failed pass.
            free_caches(state.device)
            break
    return losses, failed


def _accumulate(state: Optimisation, micro: MicroBatch, *, weight: Tensor) -> Tensor:
    is_mixed = state.autocast_dtype is not torch.float32
    with torch.autocast(state.device.type, dtype=state.autocast_dtype, enabled=is_mixed):
        logits = state.model(micro.input_ids, micro.attention_mask)
    losses = row_losses(logits, micro.labels) / weight
    torch.autograd.backward(state.scaler.scale(losses.sum()))
    return losses.detach()


def _sum_figures(
    state: Optimisation,
    micro_batches: Sequence[MicroBatch],
    *,
    losses: Sequence[Tensor],
    failed: FailedPass | None,
    group: Group,
) -> list[float]:
    """Return loss, tokens, padded tokens and failed ranks, all summed over the ranks."""
    figures = torch.tensor(
        [
            0.0,
            sum(micro.num_tokens for micro in micro_batches),
            sum(micro.num_padded_tokens for micro in micro_batches),
            failed is not None,
        ],
        dtype=torch.float64,
        device=state.device,
    )
    for loss in losses:
        figures[0] += loss.sum()
    group.sum_(figures)
    return [float(value) for value in figures.tolist()]


def _not_finite(
    problem: str,
    micro_batches: Sequence[MicroBatch],
    *,
    losses: Sequence[Tensor] | None,
    group: Group,
) -> NotFiniteError:
    rows = [row_id for micro in micro_batches for row_id in micro.row_ids]
    if losses is not None:
        is_bad = [not math.isfinite(value) for loss in losses for value in loss.tolist()]
        rows = [row_id for row_id, bad in zip(rows, is_bad, strict=True) if bad]
    return NotFiniteError(
        problem,
        place=f"rows {', '.join(map(str, group.gather(rows)))}",
    )


def _share_one_buffer(parameters: list[nn.Parameter]) -> Tensor:
    # All gradients are views of one tensor, so that one call sums them over the ranks.
    buffer = torch.zeros(
        sum(parameter.numel() for parameter in parameters),
        dtype=parameters[0].dtype,
        device=parameters[0].device,
    )
    start = 0
    for parameter in parameters:
        part = buffer[start : start + parameter.numel()]
        parameter.grad = part.view_as(parameter)
        start += parameter.numel()
    return buffer
