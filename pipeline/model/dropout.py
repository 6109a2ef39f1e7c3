"""Dropout whose random bits are cheap on a CPU.

Srivastava et al. 2014 (https://jmlr.org/papers/v15/srivastava14a.html), inverted: what is kept is
divided by the share kept, so nothing is scaled when the model answers.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16
"""Values of one draw of 16 bits; a share is rounded to 1/65536."""


class Dropout(nn.Dropout):
    """``nn.Dropout``; on a CPU it draws 16 bits a value instead of a float.

    Torch's generator gives the seed of every call, so :func:`torch.manual_seed` decides the
    draws here as well. The bits are SFC64's raw stream, which numpy keeps from release to
    release (NEP 19), so a training resumed after an upgrade draws what it would have drawn.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with ``p`` of its values 0, of the same shape and type."""
        if not self.training or self.p == 0.0 or input.device.type != "cpu":
            return functional.dropout(input, self.p, self.training)
        dropped: Tensor = _CheapDropout.apply(input, self.p)  # type: ignore[no-untyped-call]
        return dropped


class _CheapDropout(torch.autograd.Function):
    """Keeps one byte a value for the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, share: float) -> Tensor:
        least = round(share * _LEVELS)
        keep = _draw_keep(values, least)
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / (_LEVELS - least) if least < _LEVELS else 0.0
        return (values * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (gradients[0] * keep).mul_(ctx.scale), None


def _draw_keep(values: Tensor, least: int) -> Tensor:
    """Return bool of the values' shape: True where 16 random bits are ``least`` or more."""
    keep = torch.empty(values.shape, dtype=torch.bool, device=values.device)
    if type(keep) is not Tensor:
        return keep  # The memory ledger's tensors have no values, so nothing is drawn.
    seed, count = int(torch.randint(1 << 62, ())), values.numel()
    raw = np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count]
    np.greater_equal(raw, least, out=keep.view(-1).numpy())
    return keep
