"""Finds NaN and infinity in a model: in its weights, or where they arise in a run."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.contract.errors import WeightsError


def demand_finite(tensors: Mapping[str, Tensor], *, place: str, remedy: str) -> None:
    """Check that every number of these tensors is finite.

    Raises:
        WeightsError: one is NaN or infinite; it names the tensors.
    """
    bad = {
        name: int((~torch.isfinite(tensor)).sum())
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
    }
    if bad:
        counts = ", ".join(
            f"{name} ({count} of {tensors[name].numel()})" for name, count in bad.items()
        )
        raise WeightsError(
            f"tensors hold numbers that are NaN or infinite: {counts[:500]}",
            place=place,
            remedy=remedy,
        )


def demand_finite_weights(model: nn.Module, *, place: str, remedy: str) -> None:
    """Check that every weight of a model is finite, and that no buffer holds NaN.

    Infinity is allowed in buffers: masks are made of it.

    Raises:
        WeightsError: a number is not; it names the tensors.
    """
    buffers = {
        name: torch.nan_to_num(buffer, nan=torch.nan, posinf=0.0, neginf=0.0)
        for name, buffer in model.named_buffers()
        if buffer.is_floating_point()
    }
    demand_finite({**dict(model.named_parameters()), **buffers}, place=place, remedy=remedy)


def first_not_finite(model: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> str | None:
    """Return the name of the first module whose output is not finite in a run, None if none is.

    The innermost one, such as ``encoder.layer.3.output.dense``.
    """
    found: list[str] = []

    def watch(name: str) -> Any:
        def look(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(name)

        return look

    hooks = [
        module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name
    ]
    try:
        with torch.inference_mode():
            model(input_ids, attention_mask)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
