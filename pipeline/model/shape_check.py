"""Runs a model on a few tokens before training, so that what cannot be trained is said at once."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pipeline.contract.errors import TrainingError
from pipeline.model.architecture import Architecture

_ROWS, _TOKENS, _PADDED = 2, 5, 9
_SHORT_LENGTHS = (1, 3)
"""The shortest that export compares, and the shortest text between its two special tokens."""
_MAX_PADDING_SHIFT = 1e-4
"""Chosen, as export.atol: far over fp32's rounding in logits of a few units."""
_CONTRACT = (
    "forward(input_ids, attention_mask) takes int64 [batch, seq] of any length up to "
    "model.max_seq_len"
)


def check_logits(model: nn.Module, architecture: Architecture) -> list[str]:
    """Check the logits of a few rows: their shape, type and values, and that they can be trained.

    A model by import path is also run on single rows of other lengths, the longest included.
    The model and torch's random numbers are left as they were.

    Returns:
        Notes for people: whether padding moves the logits of a model by import path.

    Raises:
        TrainingError: with the wanted and the found shape, and what to do.
    """
    longest = architecture.max_position_embeddings
    with _eval_mode(model):
        shape = (_ROWS, min(_TOKENS, longest))
        logits = _run(model, architecture, _ids(architecture, shape))
        _demand_trainable(model, logits, architecture)
        if architecture.factory is None:
            return []
        with torch.no_grad():
            for length in sorted({*_SHORT_LENGTHS, longest}):
                _run(model, architecture, _ids(architecture, (1, length)))
            shift = _padding_shift(model, architecture)
    if shift <= _MAX_PADDING_SHIFT:
        return []
    return [
        f"padding moves the model's logits (by {shift:.2g} on one row), so an answer depends on "
        "what a text is batched with; use attention_mask wherever positions are mixed"
    ]


def _ids(architecture: Architecture, shape: tuple[int, int]) -> Tensor:
    # Over the whole vocabulary, so that a table that is too small is found.
    return torch.linspace(0, architecture.vocab_size - 1, math.prod(shape)).long().view(shape)


def _run(
    model: nn.Module, architecture: Architecture, ids: Tensor, mask: Tensor | None = None
) -> Tensor:
    shape = (ids.shape[0], ids.shape[1])
    try:
        logits: object = model(ids, torch.ones_like(ids) if mask is None else mask)
    except Exception as error:  # Whatever the user's code raises is the user's to read.
        raise _misfit(
            f"the model cannot run {_name(shape)}: {type(error).__name__}: {error}", architecture
        ) from error
    return _demand_shape(logits, architecture, shape=shape)


def _padding_shift(model: nn.Module, architecture: Architecture) -> float:
    longest = architecture.max_position_embeddings
    length, padded = min(_TOKENS, longest - 1), min(_PADDED, longest)
    alone = _ids(architecture, (1, length))
    filled = torch.full((1, padded), architecture.pad_token_id)
    filled[:, :length] = alone
    mask = (torch.arange(padded) < length).long().unsqueeze(0)
    moved = _run(model, architecture, filled, mask)
    if architecture.is_token_task:
        moved = moved[:, :length]
    return float((moved - _run(model, architecture, alone)).abs().max())


def _demand_shape(logits: object, architecture: Architecture, *, shape: tuple[int, int]) -> Tensor:
    rows = shape if architecture.is_token_task else shape[:1]
    axes = "[batch, seq, num_labels]" if architecture.is_token_task else "[batch, num_labels]"
    wanted = [*rows, architecture.num_labels]
    if not isinstance(logits, Tensor):
        raise _misfit(
            f"the model must return one tensor of logits {axes}, not {type(logits).__name__}",
            architecture,
        )
    if list(logits.shape) != wanted or not logits.is_floating_point():
        raise _misfit(
            f"the logits of {_name(shape)} must be float {wanted}, {axes} for {architecture.task}, "
            f"and are {str(logits.dtype).removeprefix('torch.')} {list(logits.shape)}",
            architecture,
        )
    return logits


def _demand_trainable(model: nn.Module, logits: Tensor, architecture: Architecture) -> None:
    if not torch.isfinite(logits).all():
        raise _misfit("the logits of untrained weights are not all finite", architecture)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not logits.requires_grad or not any(
        gradient is not None
        for gradient in torch.autograd.grad(logits.sum(), trained, allow_unused=True)
    ):
        raise _misfit(
            "no parameter gets a gradient from the logits (is something detached, or run under "
            "no_grad?)",
            architecture,
        )


def _name(shape: tuple[int, int]) -> str:
    return f"{shape[0]} row{'s' * (shape[0] > 1)} of {shape[1]} token{'s' * (shape[1] > 1)}"


def _misfit(problem: str, architecture: Architecture) -> TrainingError:
    if architecture.factory is None:
        return TrainingError(problem, remedy="Run `textlane prepare` and `textlane train --force`.")
    return TrainingError(
        problem,
        place="model.factory",
        value=architecture.factory,
        remedy=f"Mend the model: {_CONTRACT}.",
    )


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    was_training = {module: module.training for module in model.modules()}
    with torch.random.fork_rng(devices=[]):
        model.eval()
        try:
            yield
        finally:
            for module, mode in was_training.items():
                module.training = mode
