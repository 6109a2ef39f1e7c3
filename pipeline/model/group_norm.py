"""Puts GroupNorm in BatchNorm's place, whose statistics would be those of a slice of the batch.

A step's rows run in several forward passes (micro-batches of like length, one set on each
worker, halved where memory is short), so a BatchNorm would normalise by whatever happens to lie
in one of them, and equal steps would differ with the slicing. GroupNorm (Wu & He 2018,
https://arxiv.org/abs/1803.08494) looks at one row alone.

Here at one position of a row: its statistics are those of a group of channels, not of the
positions too (equation 4 there), because rows are padded and a text's answer must not depend on
the padding.
"""

from torch import Tensor, nn
from torch.nn import functional

from pipeline.contract.errors import ConfigError

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
_MAX_GROUPS = 32
_MIN_GROUP_CHANNELS = 16
"""32 groups and 16 channels a group were the best of their kinds (Wu & He 2018, table 3)."""


class PositionGroupNorm(nn.Module):
    """GroupNorm over the channels of each position, with one weight and bias a channel."""

    def __init__(self, norm: BatchNorm) -> None:
        """Take over the weight and bias (None without) of the norm that it stands for."""
        super().__init__()
        self.num_channels = norm.num_features
        self.num_groups = count_groups(norm.num_features)
        self.eps = norm.eps
        self.weight = norm.weight
        self.bias = norm.bias

    def forward(self, values: Tensor) -> Tensor:
        """Return the normalised values, float ``[batch, channels, …]`` as given."""
        # Sizes of the layer, not of the values: the ONNX exporter wants fixed ones.
        group_channels = self.num_channels // self.num_groups
        channels_last = values.transpose(1, -1)  # movedim is written wrongly as ONNX
        positions = channels_last.shape[:-1]
        grouped = channels_last.reshape(*positions, self.num_groups, group_channels)
        normed = functional.layer_norm(grouped, (group_channels,), eps=self.eps)
        normed = normed.reshape(*positions, self.num_channels)
        if self.weight is not None:
            normed = normed * self.weight
        if self.bias is not None:
            normed = normed + self.bias
        return normed.transpose(1, -1)

    def extra_repr(self) -> str:
        """Return what stands in the brackets of the module's text."""
        return f"{self.num_channels}, num_groups={self.num_groups}, eps={self.eps}"


def count_groups(num_channels: int) -> int:
    """Return the most groups that divide the channels: at most 32, each of 16 channels or more.

    Example: 64 channels -> 4 groups, 1024 -> 32, 48 -> 3, 20 -> 1, 101 -> 1.
    """
    most = min(_MAX_GROUPS, max(num_channels // _MIN_GROUP_CHANNELS, 1))
    return next(groups for groups in range(most, 0, -1) if num_channels % groups == 0)


def replace_batch_norms(model: nn.Module) -> list[str]:
    """Put GroupNorm in the place of every BatchNorm below a model; return their names.

    Weight and bias stay the same parameters, running statistics are dropped. InstanceNorm and
    LayerNorm look at one row already and stay.

    Raises:
        ConfigError: a BatchNorm has a single channel: of its groups nothing but zeros would come.
    """
    found = [
        (name, module)
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, BatchNorm)
    ]
    made: dict[int, PositionGroupNorm] = {}
    for name, norm in found:
        if norm.num_features == 1:
            raise ConfigError(
                "a BatchNorm over a single channel cannot become a GroupNorm",
                place="model.factory",
                value=name,
                remedy="Take it out of the model.",
            )
        parent, _, child = name.rpartition(".")
        # One layer used in two places stays one layer.
        new = made.setdefault(id(norm), PositionGroupNorm(norm))
        setattr(model.get_submodule(parent), child, new)
    return [name for name, _ in found]
