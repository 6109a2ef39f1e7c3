"""Writes the graph that ONNX Runtime really runs: the model as its own optimisers leave it."""

from pathlib import Path

import onnxruntime

from pipeline.contract.errors import FolderError
from pipeline.export.external_data import data_path, external_locations, load_graph
from pipeline.export.onnx_session import Device, open_session

OPTIMIZED_NAME = "model.optimized.onnx"
_ERRORS_ONLY = 3


def dump_optimized(model_path: Path, target_folder: Path, *, device: Device) -> Path:
    """Write a model as ONNX Runtime optimises it when it loads it; return the file.

    For looking at: the file holds for this machine, device and version of ONNX Runtime only.
    An earlier dump is written over.

    Args:
        model_path: model file.
        target_folder: made if it is not there.
        device: ``cpu`` or ``cuda``; decides what is optimised.

    Raises:
        FolderError: the target is a file, cannot be made, or is the model's own folder, where a
            file of the bundle could be taken for another.
        ConfigError: the device cannot be used.
        ExportError: ONNX Runtime refuses the model.
    """
    _demand_other_folder(model_path, target_folder)
    target = target_folder / OPTIMIZED_NAME
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(target)
    # That the file holds for this machine only is said above.
    options.log_severity_level = _ERRORS_ONLY
    data_path(target).unlink(missing_ok=True)
    if external_locations(load_graph(model_path)):
        # Otherwise the dump would name the bundle's data file, which is in another folder.
        key = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(key, data_path(target).name)
    open_session(model_path, options=options, device=device)
    return target


def _demand_other_folder(model_path: Path, target_folder: Path) -> None:
    if target_folder.resolve() == model_path.parent.resolve():
        raise FolderError(
            "the optimised graph may not be written into the model's own folder",
            place=str(target_folder),
            remedy="Name another folder.",
        )
    try:
        target_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(
            f"the folder for the optimised graph cannot be made: {error.strerror}",
            place=str(target_folder),
            remedy="Name a folder, or one that can be made.",
        ) from error
