"""What goes from the ingress to a lane and back: token rows out, logits or errors in."""

import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.errors import TextlaneError

RowKey = int
"""Drawn at random for each request: clients choose request ids and may use one twice."""


def draw_key() -> RowKey:
    """Return a key that no other request has, on whatever host."""
    return secrets.randbits(64)


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneRow:
    """One text on its way to a lane."""

    input_ids: NDArray[np.int32]
    """``int32 [seq]``."""
    request_id: str
    """The request that it belongs to; several rows may share one."""
    key: RowKey
    """What tells the rows of one request from those of any other."""
    timeout_s: float
    """Seconds after its arrival at a replica in which its run may begin. Not a time of day: the
    clocks of two hosts differ, and one may be set while it waits.
    """
    is_shadow: bool = False
    """Whether no user waits for it: it runs where nothing else does, or not at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneAnswer:
    """What became of a row."""

    outcome: NDArray[np.float32] | TextlaneError
    """``float32 [num_labels]``, ``[seq, num_labels]`` for the token task, or why there is none."""
    queue_ms: float
    """Milliseconds from arrival on the replica to the start of the model run."""
    session_ms: float
    """Milliseconds of the model run that it was part of."""
    batch_rows: int
    """Rows of that run; 0 where there was none."""
