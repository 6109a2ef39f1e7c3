"""The job schema, section by section; everything is imported from here."""

from pipeline.config.data import BucketSettings, DataSettings, Task
from pipeline.config.job import (
    EvaluateSettings,
    ExportSettings,
    JobConfig,
    MlflowSettings,
    RaySettings,
    load_job,
    resolve_location,
)
from pipeline.config.model import ModelSettings
from pipeline.config.pretrained import check_pretrained
from pipeline.config.train import AugmentationSettings, TrainSettings

__all__ = [
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
    "check_pretrained",
    "load_job",
    "resolve_location",
]
