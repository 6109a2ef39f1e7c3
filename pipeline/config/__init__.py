"""The job schema, section by section; everything is imported from here."""

from pipeline.config.data import BucketSettings, DataSettings, Task
from pipeline.config.export import ExportSettings
from pipeline.config.factory_module import check_factory, find_factory_file
from pipeline.config.job import (
    EvaluateSettings,
    JobConfig,
    MlflowSettings,
    RaySettings,
    load_job,
    resolve_location,
)
from pipeline.config.model import FACTORY_FACTS, ModelSettings
from pipeline.config.pretrained import check_pretrained
from pipeline.config.train import AugmentationSettings, TrainSettings

__all__ = [
    "FACTORY_FACTS",
    "AugmentationSettings",
    "BucketSettings",
    "DataSettings",
    "EvaluateSettings",
    "ExportSettings",
    "JobConfig",
    "MlflowSettings",
    "ModelSettings",
    "RaySettings",
    "Task",
    "TrainSettings",
    "check_factory",
    "check_pretrained",
    "find_factory_file",
    "load_job",
    "resolve_location",
]
