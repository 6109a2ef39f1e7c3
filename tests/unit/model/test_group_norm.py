"""GroupNorm in BatchNorm's place: of one position, so that neither batch nor padding enters."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from pipeline.model.group_norm import PositionGroupNorm, count_groups, replace_batch_norms


@given(st.integers(2, 5000))
def test_groups_divide_the_channels_and_are_at_most_32_of_16_or_more(num_channels):
    groups = count_groups(num_channels)

    assert num_channels % groups == 0
    assert 1 <= groups <= 32
    assert groups == 1 or num_channels // groups >= 16


@pytest.mark.parametrize(
    ("num_channels", "groups"), [(64, 4), (512, 32), (1024, 32), (48, 3), (20, 1), (101, 1)]
)
def test_examples_of_groups(num_channels, groups):
    assert count_groups(num_channels) == groups


def rough_norm(num_channels, kind=nn.BatchNorm1d):
    norm = kind(num_channels, eps=1e-3)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return PositionGroupNorm(norm)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 32), (3, 32, 5), (3, 32, 5, 4)])
def test_it_is_groupnorm_of_every_position(shape):
    norm, values = rough_norm(32), torch.randn(shape)

    normed = norm(values)

    positions = values.movedim(1, -1).reshape(-1, 32)
    expected = functional.group_norm(positions, 2, norm.weight, norm.bias, eps=1e-3)
    assert normed.shape == shape
    torch.testing.assert_close(normed.movedim(1, -1).reshape(-1, 32), expected)


def test_a_row_gives_the_same_in_any_batch_and_under_any_padding():
    norm, values = rough_norm(32), torch.randn(4, 32, 7)
    padded = torch.cat([values[:1], torch.zeros(1, 32, 3)], dim=2)

    alone, together = norm(values[:1]), norm(values)

    torch.testing.assert_close(alone, together[:1])
    torch.testing.assert_close(alone, norm(padded)[:, :, :7])


def test_every_kind_of_batchnorm_is_replaced_and_no_other_norm():
    shared = nn.BatchNorm1d(16)
    model = nn.ModuleDict(
        {
            "inner": nn.Sequential(nn.BatchNorm2d(32), nn.ReLU()),
            "across": nn.SyncBatchNorm(16, affine=False),
            "one": shared,
            "same": shared,
            "instance": nn.InstanceNorm1d(16),
            "layer": nn.LayerNorm(16),
        }
    )
    weight = model["inner"][0].weight

    names = replace_batch_norms(model)

    assert names == ["inner.0", "across", "one", "same"]
    assert model["inner"][0].weight is weight
    assert model["one"] is model["same"]
    assert isinstance(model["instance"], nn.InstanceNorm1d)
    assert model["across"](torch.randn(2, 16)).mean().abs() < 1e-5
    assert {name for name, _ in model.named_buffers()} == set()
