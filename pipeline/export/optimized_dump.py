"""Writes the graph that ONNX Runtime really runs: the model as its own optimisers leave it."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnxruntime

from pipeline.contract.errors import ExportError, FolderError
from pipeline.export.external_data import data_path, external_locations, load_graph
from pipeline.export.onnx_session import Device, open_session

OPTIMIZED_NAME = "model.optimized.onnx"
_ERRORS_ONLY = 3
_PARTIAL = ".dump-"


def prepare_dump_folder(target_folder: Path, *, sealed: Sequence[Path]) -> None:
    """Make the folder for dumps, and check that they may and can be written there.

    Before the work whose graphs are dumped: it may take hours.

    Args:
        target_folder: made if it is not there.
        sealed: folders whose every file is named in a manifest.

    Raises:
        FolderError: the target is a file, cannot be made or written to, or is in a sealed
            folder.
    """
    for folder in sealed:
        _demand_outside(target_folder, folder)
    try:
        target_folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target_folder):
            pass
    except OSError as error:
        raise _unusable(target_folder, error) from error


def dump_optimized(model_path: Path, target_folder: Path, *, device: Device) -> Path:
    """Write a model as ONNX Runtime optimises it when it loads it; return the file.

    For looking at: the file holds for this machine, device and version of ONNX Runtime only.
    An earlier dump is written over once the new one is whole.

    Args:
        model_path: model file.
        target_folder: made if it is not there.
        device: ``cpu`` or ``cuda``; decides what is optimised.

    Raises:
        FolderError: the target is a file, cannot be made or written to, or is in the model's
            own folder, where a file of the bundle could be taken for another.
        ConfigError: the device cannot be used.
        ExportError: ONNX Runtime refuses the model, or cannot write what it made of it.
    """
    _demand_outside(target_folder, model_path.parent)
    target = target_folder / OPTIMIZED_NAME
    try:
        target_folder.mkdir(parents=True, exist_ok=True)
        for left in target_folder.glob(f"{_PARTIAL}*"):  # By a kill inside the block below.
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=target_folder, prefix=_PARTIAL) as folder:
            partial = Path(folder) / OPTIMIZED_NAME
            _write(model_path, partial, device=device)
            remove_dump(target_folder)
            for path in (data_path(partial), partial):
                if path.exists():
                    os.replace(path, target_folder / path.name)
    except OSError as error:
        raise _unusable(target_folder, error) from error
    return target


def remove_dump(target_folder: Path) -> None:
    """Remove an earlier dump, if there is one; the folder stays."""
    for path in (target_folder / OPTIMIZED_NAME, data_path(target_folder / OPTIMIZED_NAME)):
        path.unlink(missing_ok=True)


def _write(model_path: Path, target: Path, *, device: Device) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(target)
    # That the file holds for this machine only is said above.
    options.log_severity_level = _ERRORS_ONLY
    if external_locations(load_graph(model_path)):
        # Otherwise the dump would name the bundle's data file, which is in another folder.
        key = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(key, data_path(target).name)
    try:
        open_session(model_path, options=options, device=device)
    except ExportError as error:
        raise ExportError(
            f"the optimised graph cannot be made or written: {error.problem}",
            place=str(target.parent.parent / OPTIMIZED_NAME),
            remedy="Look whether its disk is full.",
        ) from error


def _demand_outside(target_folder: Path, sealed: Path) -> None:
    if target_folder.resolve().is_relative_to(sealed.resolve()):
        raise FolderError(
            f"the optimised graph may not be written into {sealed}, whose files are all counted",
            place=str(target_folder),
            remedy="Name another folder.",
        )


def _unusable(target_folder: Path, error: OSError) -> FolderError:
    return FolderError(
        f"the folder for the optimised graph cannot be made or written to: {error.strerror}",
        place=str(target_folder),
        remedy="Name a folder that is there or can be made, on a disk with room.",
    )
