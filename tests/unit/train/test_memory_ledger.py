import pytest
import torch
from torch import nn
from train_fakes import LivingBytes
from train_samples import build_tiny_model

from pipeline.config import Task
from pipeline.contract.errors import TrainingError
from pipeline.train.activations import measure_pass
from pipeline.train.memory import (
    build_memory_ledger,
    check_memory,
    describe_memory,
)
from pipeline.train.step import autocast_dtype, row_losses

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


class OneTable(nn.Module):
    """110 million parameters that hold no memory."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(110_000, 1000, device="meta")

    def forward(self, input_ids, attention_mask):
        return self.table(input_ids).sum(dim=1)


class LooksAtValues(nn.Module):
    """Needs the values of its input, as fake tensors cannot give them."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask):
        if attention_mask.all():
            raise AssertionError("not reached")
        return self.head(input_ids[:, :4].float())


class SoftmaxOfProducts(nn.Module):
    """The softmax gets what a matrix product gives, half precision under autocast."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 100)

    def forward(self, input_ids, attention_mask):
        return self.head(input_ids[:, :4].float()).softmax(dim=-1)


class DroppedProducts(nn.Module):
    """Drops with torch's own module, as models by import path do."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 100)
        self.dropout = nn.Dropout(0.5)

    def forward(self, input_ids, attention_mask):
        return self.dropout(self.head(input_ids[:, :4].float()))


def real_pass_bytes(model, *, precision, rows, seq_len):
    """Return the most bytes that live storages take while a real pass runs."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    input_ids = torch.zeros(rows, seq_len, dtype=torch.int64)
    dtype = autocast_dtype(precision)
    with LivingBytes() as living:
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
            logits = model(input_ids, torch.ones_like(input_ids))
        labels = torch.zeros(logits.shape[:-1], dtype=torch.int64)
        row_losses(logits, labels).sum().backward()
    return living.most


def saved_bytes(model, *, rows, seq_len):
    """Return the bytes of all tensors that a forward pass keeps for the way back."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    input_ids = torch.zeros(rows, seq_len, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(input_ids, torch.ones_like(input_ids))
    assert logits.requires_grad
    return sum(kept.values())


def test_ledger_of_110_million_parameters():
    ledger = build_memory_ledger(OneTable(), precision="fp32", rows=2, seq_len=3)

    assert ledger.parameters_bytes == ledger.gradients_bytes == 440_000_000
    assert ledger.optimizer_bytes == 880_000_000
    line = describe_memory(ledger)
    assert line.startswith("parameters 440 + gradients 440 + optimiser 880 + activations of 2 rows")


@pytest.mark.slow
@pytest.mark.parametrize("task", [Task.SEQUENCE, Task.TOKEN])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_measured_pass_takes_what_a_real_one_takes(task, precision):
    model = build_tiny_model(task, dropout=0.1).train()

    measured = measure_pass(model, precision=precision, rows=6, seq_len=11)
    real = real_pass_bytes(model, precision=precision, rows=6, seq_len=11)

    together = measured.activations_bytes + measured.autocast_bytes
    assert real <= together <= real * 1.05
    assert (measured.autocast_bytes == 0) == (precision == "fp32")


@pytest.mark.slow
def test_measured_pass_takes_what_autograd_keeps_and_little_more():
    model = build_tiny_model(dropout=0.1).train()

    measured = measure_pass(model, precision="fp32", rows=64, seq_len=16).activations_bytes

    saved = saved_bytes(model, rows=64, seq_len=16)
    assert saved < measured < saved * 1.1


def test_dropout_of_torch_keeps_a_byte_an_element_on_cuda_and_a_float_on_a_cpu():
    on_cpu, on_cuda = (
        measure_pass(DroppedProducts(), precision="fp32", rows=64, seq_len=16, device_type=kind)
        for kind in ("cpu", "cuda")
    )

    assert on_cpu.activations_bytes - on_cuda.activations_bytes == 3 * 64 * 100


@pytest.mark.slow
def test_dropout_of_the_encoder_keeps_a_byte_an_element_on_both():
    on_cpu, on_cuda = (
        measure_pass(
            build_tiny_model(dropout=0.1),
            precision="fp32",
            rows=64,
            seq_len=16,
            device_type=kind,
        )
        for kind in ("cpu", "cuda")
    )

    assert on_cpu.activations_bytes == pytest.approx(on_cuda.activations_bytes, rel=0.02)


def test_softmax_and_layer_norm_are_in_fp32_under_autocast_on_cuda():
    on_cpu, on_cuda = (
        measure_pass(SoftmaxOfProducts(), precision="bf16", rows=64, seq_len=16, device_type=kind)
        for kind in ("cpu", "cuda")
    )

    assert on_cuda.activations_bytes >= on_cpu.activations_bytes + 2 * 64 * 100
    assert on_cuda.autocast_bytes == on_cpu.autocast_bytes


@pytest.mark.slow
def test_half_precision_copies_are_those_of_the_multiplied_matrices():
    model = build_tiny_model()
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]

    ledger = build_memory_ledger(model, precision="bf16", rows=2, seq_len=5)

    assert ledger.autocast_bytes == sum(2 * p.numel() for m in linears for p in m.parameters())
    assert "autocast copies 0.0" in describe_memory(ledger)


@pytest.mark.slow
def test_measuring_leaves_the_model_and_the_generators_as_they_were():
    model = build_tiny_model(dropout=0.1).eval()
    state = torch.get_rng_state()

    build_memory_ledger(model, precision="bf16", rows=3, seq_len=5)

    assert not any(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_model_that_cannot_be_measured_says_so_and_is_checked_without_activations():
    ledger = build_memory_ledger(LooksAtValues(), precision="fp32", rows=8, seq_len=5)

    assert ledger.activations_bytes is None
    assert ledger.total_bytes == 10 * 4 * 4
    assert "activations on top (not known: DataDependent" in describe_memory(ledger)
    judge(ledger, there=160)
    with pytest.raises(TrainingError, match="Not even one row fits"):
        judge(ledger, there=159)


def judge(ledger, *, there, num_local_workers=1, device=CPU):
    check_memory(ledger, device, num_local_workers, available=lambda _: there)


@pytest.mark.slow
def test_refusal_names_both_numbers_and_the_largest_micro_batch_that_fits():
    model = build_tiny_model()
    ledger = build_memory_ledger(model, precision="fp32", rows=400, seq_len=16)
    there = ledger.total_bytes // 2

    with pytest.raises(TrainingError) as caught:
        judge(ledger, there=2 * there, num_local_workers=2)

    message = str(caught.value)
    assert f"training takes {ledger.total_bytes / 1e6:.0f} MB" in message
    assert f"each of 2 workers can have {there / 1e6:.1f} MB on cpu" in message
    rows = ledger.rows_within(there)
    assert f"Set train.micro_batch to {rows} or lower." in message
    fits = build_memory_ledger(model, precision="fp32", rows=rows, seq_len=16)
    assert 0.9 * there < fits.total_bytes <= there


@pytest.mark.slow
def test_cuda_devices_are_not_shared():
    ledger = build_memory_ledger(build_tiny_model(), precision="fp32", rows=4, seq_len=16)

    judge(ledger, there=ledger.total_bytes, num_local_workers=8, device=torch.device("cuda"))


@pytest.mark.slow
def test_tiny_models_are_shown_with_one_decimal():
    ledger = build_memory_ledger(build_tiny_model(), precision="fp32", rows=100, seq_len=16)

    line = describe_memory(ledger)

    assert line.startswith("parameters 0.0 + gradients 0.0 + optimiser 0.0 + activations of 100")
    assert line.endswith(f" = {ledger.total_bytes / 1e6:.1f} MB")
