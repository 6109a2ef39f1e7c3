"""A checkpoint folder's records to what the symptoms look at."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cluster.doctor.observations import Event, TrainingObservation
from pipeline.contract.errors import MissingFileError

_EVENTS, _HISTORY = "events.jsonl", "history.jsonl"
_LAST_STEPS = 200
_MOST_BYTES = 64 * 1024 * 1024
_RecordT = TypeVar("_RecordT")


def observe_training(folder: Path) -> TrainingObservation:
    """Return what the folder tells of its training since it was last resumed.

    Raises:
        MissingFileError: nothing there is a training's.
    """
    events = _read_lines(folder / _EVENTS, _read_event)
    steps = _read_lines(folder / _HISTORY, _read_step)
    if events is None and steps is None:
        raise MissingFileError(
            f"neither {_EVENTS} nor {_HISTORY} is here, so it is no checkpoint folder",
            place=str(folder),
            remedy="Give the folder `checkpoint` in the job's output_dir.",
        )
    good_events, bad_events = events or ([], 0)
    good_steps, bad_steps = steps or ([], 0)
    resumed = [at for at, event in enumerate(good_events) if event.kind == "resumed"]
    last = good_steps[-_LAST_STEPS:]
    return TrainingObservation(
        folder=str(folder),
        events=tuple(good_events[resumed[-1] + 1 if resumed else 0 :]),
        steps=len(good_steps),
        micro_batch=last[-1][0] if last else None,
        padding_share=sum(share for _, share in last) / len(last) if last else None,
        spoilt_lines=bad_events + bad_steps,
    )


def _read_lines(
    path: Path, read: Callable[[Mapping[str, Any]], _RecordT]
) -> tuple[list[_RecordT], int] | None:
    """Return the records and the number of lines that hold none; None where there is no file."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - _MOST_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    found, bad = [], 0
    # A line without its end is being written; the cut leaves a part of the first.
    for line in lines[1 if start else 0 : -1]:
        try:
            found.append(read(json.loads(line)))
        except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
            bad += 1
    return found, bad


def _read_event(values: Mapping[str, Any]) -> Event:
    return Event(step=int(values["step"]), kind=str(values["kind"]), message=str(values["message"]))


def _read_step(values: Mapping[str, Any]) -> tuple[int, float]:
    padding_share = float(values["padding_share"])
    if not 0.0 <= padding_share <= 1.0:
        raise ValueError("padding_share is no share")
    return int(values["micro_batch"]), padding_share
