import pytest
import torch
from torch import nn

from pipeline.model.dropout import Dropout


def draw(p, shape=(200, 500), seed=3):
    torch.manual_seed(seed)
    values = torch.ones(shape, requires_grad=True)
    return values, Dropout(p)(values)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_share_p_is_dropped_and_the_mean_stays(p):
    _, dropped = draw(p)

    assert (dropped == 0).float().mean().item() == pytest.approx(p, abs=0.01)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.05)
    assert dropped.unique().numel() == 2


@pytest.mark.slow
def test_torchs_seed_decides_the_draws_and_every_call_draws_anew():
    (_, one), (_, same), (_, other) = draw(0.5), draw(0.5), draw(0.5, seed=4)
    torch.manual_seed(3)
    dropout = Dropout(0.5)
    first, second = (dropout(torch.ones(200, 500)) for _ in range(2))

    assert torch.equal(one, same)
    assert torch.equal(one, first)
    assert not torch.equal(one, other)
    assert not torch.equal(first, second)


def test_the_draws_are_those_of_every_release():
    _, dropped = draw(0.5, shape=(16,), seed=0)

    assert "".join(str(int(value > 0)) for value in dropped) == "0110100001111110"


def test_the_gradient_goes_where_the_values_went():
    values, dropped = draw(0.3)

    dropped.sum().backward()

    assert torch.equal(values.grad, dropped.detach())


def test_neighbours_are_dropped_independently():
    _, dropped = draw(0.5)

    kept = (dropped > 0).float() - 0.5
    for shift in (1, 2, 3, 4, 8):
        assert abs(float((kept[:, shift:] * kept[:, :-shift]).mean())) < 0.005


@pytest.mark.parametrize(("p", "dtype"), [(0.0, torch.float32), (0.4, torch.bfloat16)])
def test_types_and_sizes_stay_and_no_dropout_changes_nothing(p, dtype):
    values = torch.randn(3, 5, 7, dtype=dtype)

    dropped = Dropout(p)(values)

    assert (dropped.dtype, dropped.shape) == (values.dtype, values.shape)
    assert torch.equal(Dropout(p).eval()(values), values)
    assert p > 0 or torch.equal(dropped, values)


def test_all_can_be_dropped():
    _, dropped = draw(1.0)

    assert dropped.count_nonzero() == 0


def test_it_is_torchs_module_for_whoever_looks_for_one():
    assert isinstance(Dropout(0.1), nn.Dropout)
