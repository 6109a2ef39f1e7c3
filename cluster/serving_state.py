"""What the serving process tells the command that waits for it: one small file, replaced whole."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.contract.folder import write_text_atomically

_NAME = "state.json"


@dataclass(frozen=True, kw_only=True)
class ServingState:
    """How far the start is."""

    stage: str = "starting Python"
    """What is awaited, for people."""
    is_running: bool = False
    """Whether Ray Serve says that all replicas run."""
    metrics_port: int | None = None
    """Where this node's metrics are, in Prometheus' format."""
    error: str | None = None
    """Why there will be no server."""
    is_users: bool = False
    """Whether the error says all there is to say, so that nobody needs the logs."""


def write_state(folder: Path, state: ServingState) -> None:
    """Replace the state in the folder."""
    write_text_atomically(folder / _NAME, json.dumps(asdict(state)))


def read_state(folder: Path) -> ServingState:
    """Return the state, or that of the very beginning where none was written yet."""
    try:
        text = (folder / _NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ServingState()
    return ServingState(**json.loads(text))
