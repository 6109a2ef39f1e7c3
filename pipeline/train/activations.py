"""What a pass takes beside the weights, measured on tensors without values."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.train.step import Precision, autocast_dtype, row_losses

DeviceType = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class PassMemory:
    """Bytes of one forward and backward pass at its worst moment."""

    activations_bytes: int
    """What the backward pass needs and what the kernels of the moment make."""
    autocast_bytes: int
    """Half-precision copies of weights."""


def measure_pass(
    model: nn.Module,
    *,
    precision: Precision,
    rows: int,
    seq_len: int,
    device_type: DeviceType = "cpu",
) -> PassMemory:
    """Return what a padded pass takes in training, without running or allocating it.

    Every operation of both ways is sent through with fake tensors, which know shape, type and
    storage but hold no values, and the bytes of all living storages are added up. On a CPU the
    figure is that of a real pass to the byte. For CUDA, the CPU's operators run in the place of
    its own, but for what :class:`_AsOnCuda` knows; buffers inside kernels are not seen.

    Args:
        model: with ``forward(input_ids, attention_mask)`` to logits; left as it is.
        precision: the run's.
        rows: of the pass.
        seq_len: tokens of every row.
        device_type: where the run is to be.

    Raises:
        Exception: whatever a model raises that looks at values, which fake tensors do not have.
    """
    fake = FakeTensorMode()
    named = [*model.named_parameters(), *model.named_buffers()]
    tensors = {name: fake.from_tensor(tensor) for name, tensor in named}
    weights = [tensor for tensor in tensors.values() if tensor.requires_grad]
    device = next(iter(tensors.values())).device
    with fake, _training_mode(model):
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        input_ids = torch.zeros(rows, seq_len, dtype=torch.int64, device=device)
        attention_mask = torch.ones_like(input_ids)
        living = _LivingStorages(list(tensors.values()))
        with living, _AsOnCuda() if device_type == "cuda" else nullcontext():
            _run(model, tensors, (input_ids, attention_mask), precision=precision)
    return PassMemory(activations_bytes=living.most_bytes, autocast_bytes=living.most_copies_bytes)


def _run(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    inputs: tuple[Tensor, Tensor],
    *,
    precision: Precision,
) -> None:
    kind, dtype = inputs[0].device.type, autocast_dtype(precision)
    # Tensors of the meta device are cast as the CPU would, where a CPU stands for them.
    kind = "cpu" if kind == "meta" else kind
    with torch.autocast(kind, dtype=dtype, enabled=dtype is not torch.float32):
        logits = functional_call(model, dict(tensors), inputs)
    labels = torch.zeros(logits.shape[:-1], dtype=torch.int64, device=logits.device)
    torch.autograd.backward(row_losses(logits, labels).sum())


@contextmanager
def _training_mode(model: nn.Module) -> Iterator[None]:
    was = {module: module.training for module in model.modules()}
    model.train()
    try:
        yield
    finally:
        for module, is_training in was.items():
            module.training = is_training


class _AsOnCuda(TorchFunctionMode):
    """Lets the CPU's operators keep what CUDA's keep.

    CUDA's dropout keeps a byte for each element, the CPU's a factor of the input's type.
    CUDA's autocast casts to fp32 before a softmax or LayerNorm, the CPU's does not
    (https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32").
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "dropout":
            return _dropout(*args, **kwargs)
        if name in ("softmax", "log_softmax", "layer_norm") and args:
            return func(args[0].float(), *args[1:], **kwargs)
        return func(*args, **kwargs)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(input, p, training)[0] if training and p > 0.0 else input


class _LivingStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Adds up the bytes of all storages that operations make, as long as they live."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self._weights = {id(weight) for weight in weights}
        # Gradients are in the ledger already, the weights too.
        self._seen = weakref.WeakSet(_storage(tensor) for tensor in weights)
        self._seen.update(_storage(w.grad) for w in weights if w.grad is not None)
        self._bytes = self._copies_bytes = 0
        self.most_bytes = self.most_copies_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        is_copy = func is torch.ops.aten._to_copy.default and id(args[0]) in self._weights
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and _storage(tensor) not in self._seen:
                self._seen.add(_storage(tensor))
                size = _storage(tensor).nbytes()
                self._add(size, is_copy)
                weakref.finalize(_storage(tensor), self._add, -size, is_copy)
        return made

    def _add(self, size: int, is_copy: bool) -> None:
        if is_copy:
            self._copies_bytes += size
        else:
            self._bytes += size
        self.most_bytes = max(self.most_bytes, self._bytes)
        self.most_copies_bytes = max(self.most_copies_bytes, self._copies_bytes)


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
