"""Whether there is a tuning for what is served, and whether it holds here."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.contract.bundle import Bundle
from pipeline.contract.errors import FolderError
from serve_app.config import ServeSettings
from serve_app.machine import read_machine
from serve_app.tuning_choice import TuningChoice
from serve_app.tuning_file import read_tuning, remedy_for, tuning_path, why_not

_DECIDED = ("threads_per_replica", "short_max_tokens", "max_batch_tokens", "max_batch_requests")


@dataclass(frozen=True, kw_only=True)
class FoundTuning:
    """The choice to heed, or why there is none."""

    choice: TuningChoice | None = None
    note: str | None = None
    """Why a tuning that is there is passed over, and the remedy."""


def find_tuning(settings: ServeSettings, *, bundle: Bundle, model: str) -> FoundTuning:
    """Return the tuning that the settings name, else the one beside the bundle, if it holds.

    Args:
        settings: ``tuning`` names a file; relative, it starts in the working folder.
        bundle: what is served.
        model: name of the model file that is served.

    Raises:
        MissingFileError: the named file is not there.
        FolderError: (or a subtype) the named file is damaged. One that nobody named is
            passed over for that, too.
    """
    path = Path(settings.tuning) if settings.tuning else tuning_path(bundle.folder)
    if settings.tuning is None:
        is_all_set = all(getattr(settings, name) is not None for name in _DECIDED)
        if is_all_set or not path.exists():
            return FoundTuning()
    try:
        tuning = read_tuning(path)
    except FolderError as error:
        if settings.tuning is not None:
            raise
        return FoundTuning(note=f"the tuning is passed over: {error}")
    reason = why_not(tuning, bundle=bundle, model=model, machine=read_machine())
    if settings.device != "cpu":
        reason = f"it was measured on the CPU, and device is {settings.device}"
    if reason is None:
        return FoundTuning(choice=tuning.choice)
    note = f"the tuning {path} is passed over: {reason}."
    if settings.device == "cpu":
        note += f" {remedy_for(bundle.folder)}"
    return FoundTuning(note=note)
