"""The served folder: manifest, hashes and limits; written by export, read by serving."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from pipeline.contract.errors import (
    AlteredFileError,
    FolderError,
    MissingFileError,
    SchemaVersionError,
)
from pipeline.contract.folder import (
    MANIFEST_NAME,
    atomic_folder,
    fingerprint,
    hash_files,
    read_manifest,
    verify_files,
    write_manifest,
)
from pipeline.contract.profile import TrainingProfile, length_edges
from pipeline.contract.settings import Settings
from pipeline.contract.tokenization import TextEncoder, TextSettings, load_text_encoder

BUNDLE_SCHEMA_VERSION = 4
FP32_NAME = "model.onnx"
INT8_NAME = "model_int8.onnx"
FP16_NAME = "model_fp16.onnx"
ModelName = Literal["model.onnx", "model_int8.onnx", "model_fp16.onnx"]
MODEL_NAMES = (FP32_NAME, FP16_NAME, INT8_NAME)
_SEAL = "sha256_of_the_rest"
_PICKLE_ENDINGS = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".joblib", ".npy", ".npz")


class Limits(Settings):
    """What a request may carry; serving refuses more."""

    max_seq_len: int = Field(ge=3)
    """Tokens of one text, special tokens included; longer texts are cut and marked."""
    max_text_chars: int = Field(ge=1)
    """Characters of one text; longer ones are refused."""
    max_batch_rows: int = Field(ge=1)
    """Rows of one model run, as checked at export."""


class BatchShift(Settings):
    """How far the answer to one text moved with the batch that it was run in, at most.

    The text alone against: padded to each bucket edge, and among longer texts. What two
    versions may differ by is never less than what one version differs from itself by.
    """

    logit: float = Field(ge=0.0)
    """Largest change of a logit."""
    probability: float = Field(ge=0.0)
    """Largest change of a probability: of softmax, or of sigmoid for multi-label texts."""


class BundleManifest(Settings):
    """Everything about a bundle that is not in its model files."""

    schema_version: int
    name: str
    task: Literal["sequence_classification", "token_classification", "multi_label_classification"]
    labels: tuple[str, ...] = Field(strict=False, min_length=1)
    """Label names; position is the index on the last axis of logits."""
    target: Literal["cpu", "cuda"]
    """Device that the model files were measured and chosen for."""
    default_model: ModelName
    """Model file that serving loads unless told otherwise."""
    batch_shift: dict[ModelName, BatchShift]
    """Model file → how far its answers move with their batch; a comparison's tolerance."""
    seq_len_percentiles: tuple[int, ...] = Field(strict=False, min_length=101, max_length=101)
    """Tokens of the training texts: shortest, 1st … 99th percentile, longest; for tuning."""
    profile: TrainingProfile
    """Lengths, unknown tokens, confidence and label mix, for drift of live texts."""
    opset: int
    pad_token_id: int
    max_seq_len: int
    strip_html: bool
    takes_pairs: bool
    """Whether the model labels pairs of texts; it then takes no single ones."""
    text_fingerprint: str
    """Hash of tokenizer and text settings; serving refuses a bundle where it differs."""
    limits: Limits
    quality: dict[str, Any]
    """Figures of export's checks: ``accuracy`` by model file, sizes, latencies, gate.

    ``latency_ms`` is by model file and shape, such as ``{"model.onnx": {"1x16": 2.9}}``:
    batch, tokens and the median of a run.

    ``accuracy`` of multi-label texts is the share whose whole set of labels is right.
    """
    provenance: dict[str, Any]
    """data_hash, config_hash, checkpoint, versions, commit."""
    files: dict[str, str]
    """Relative path → sha256 of every other file in the folder."""

    @model_validator(mode="after")
    def _demand_classes_of_length(self) -> "BundleManifest":
        classes, counts = length_edges(self.seq_len_percentiles), self.profile.length_counts
        if len(counts) != len(classes) + 1:
            raise ValueError(
                f"profile.length_counts has {len(counts)} classes, the percentiles make "
                f"{len(classes) + 1}"
            )
        return self

    @property
    def text_settings(self) -> TextSettings:
        """What decides the ids of a text beside the tokenizer file."""
        return TextSettings(max_seq_len=self.max_seq_len, strip_html=self.strip_html)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A verified bundle."""

    folder: Path
    manifest: BundleManifest

    @property
    def version(self) -> str:
        """Short name of exactly these bytes: job name and 12 digits of the files' hash."""
        return f"{self.manifest.name}-{fingerprint(self.manifest.files)[:12]}"

    @property
    def model_names(self) -> tuple[str, ...]:
        """The model files: ``model.onnx``, and what was made from it."""
        return tuple(name for name in MODEL_NAMES if name in self.manifest.files)

    def model_path(self, name: str | None = None) -> Path:
        """Return the path of a model file, of the default one if None.

        Raises:
            FolderError: the bundle has no such file.
        """
        name = name or self.manifest.default_model
        if name not in self.model_names:
            known = ", ".join(self.model_names)
            raise FolderError("the bundle has no such model", value=name, remedy=f"It has {known}.")
        return self.folder / name

    def load_text_encoder(self) -> TextEncoder:
        """Return the tokenizer of this bundle.

        Raises:
            AlteredFileError: it does not give the ids that the model was trained with.
        """
        encoder = load_text_encoder(self.folder, self.manifest.text_settings)
        if encoder.fingerprint != self.manifest.text_fingerprint:
            raise AlteredFileError(
                "tokenizer and text settings are not those of training",
                place=str(self.folder),
                value=encoder.fingerprint,
                remedy="Export the bundle again with the installed version.",
            )
        return encoder


def write_bundle(
    target: Path,
    *,
    fill: Callable[[Path], None],
    describe: Callable[[dict[str, str]], BundleManifest],
) -> Bundle:
    """Write a bundle atomically: an existing one stays until the new one is complete.

    Args:
        target: the bundle's folder.
        fill: writes the files into the folder it is given.
        describe: returns the manifest for the files' hashes.

    Raises:
        FolderError: a file is a pickle by its ending, or the manifest does not fit the files.
    """
    with atomic_folder(target) as folder:
        fill(folder)
        files = hash_files(folder)
        pickles = [name for name in files if name.endswith(_PICKLE_ENDINGS)]
        if pickles:
            raise FolderError("a bundle may not hold pickled files", value=pickles)
        manifest = describe(files)
        if manifest.files != files or manifest.default_model not in files:
            raise FolderError("the manifest does not name the folder's files", place=str(target))
        _demand_shifts(manifest, place=target)
        write_manifest(folder, seal_manifest(manifest.model_dump(mode="json")))
    return load_bundle(target)


def seal_manifest(values: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with the hash of all its other fields.

    It cannot list its own sha256 among the files; unsealed, swapped labels would pass.
    """
    fields = {key: value for key, value in values.items() if key != _SEAL}
    return {**fields, _SEAL: fingerprint(fields)}


def demand_bundle(folder: Path, *, named_by: str) -> None:
    """Refuse a folder in which no bundle is; its files are not checked.

    Args:
        folder: absolute, as people should see it.
        named_by: where the caller's user names a bundle, for the remedy.

    Raises:
        MissingFileError: there is no bundle; the remedy tells what to do.
    """
    if (folder / MANIFEST_NAME).is_file():
        return
    remedy = f"Run `make demo` to make one, or set {named_by} to the folder of yours."
    if (folder / "bundle" / MANIFEST_NAME).is_file():
        remedy = f"Did you mean {folder / 'bundle'}? Set {named_by} to it."
    raise MissingFileError("there is no bundle here", place=str(folder), remedy=remedy)


def load_bundle(folder: Path) -> Bundle:
    """Return a bundle whose every byte is as it was written.

    Raises:
        MissingFileError: the manifest or a file is not there.
        AlteredFileError: a file was changed.
        SchemaVersionError: a newer or unknown schema wrote it.
        FolderError: the manifest is not a bundle's.
    """
    values = read_manifest(folder)
    version = values.get("schema_version")
    if version != BUNDLE_SCHEMA_VERSION:
        raise SchemaVersionError(
            f"this version reads bundles of schema {BUNDLE_SCHEMA_VERSION}",
            place=str(folder),
            value=version,
            remedy="Upgrade textlane, or export the bundle again with this version.",
        )
    if values != seal_manifest(values):
        raise AlteredFileError(
            "the manifest was changed after it was written",
            place=str(folder / MANIFEST_NAME),
            remedy="Export the bundle again; do not edit its files by hand.",
        )
    try:
        values = {key: value for key, value in values.items() if key != _SEAL}
        manifest = BundleManifest.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise FolderError(
            f"not a bundle's manifest: {field}: {first['msg']}", place=str(folder)
        ) from None
    verify_files(folder, manifest.files)
    if manifest.default_model not in manifest.files:
        raise FolderError(
            "the default model is not among the files",
            place=str(folder),
            value=manifest.default_model,
        )
    _demand_shifts(manifest, place=folder)
    return Bundle(folder=folder, manifest=manifest)


def _demand_shifts(manifest: BundleManifest, *, place: Path) -> None:
    models = {name for name in MODEL_NAMES if name in manifest.files}
    if set(manifest.batch_shift) != models:
        raise FolderError(
            f"batch_shift must have the model files {', '.join(sorted(models))}",
            place=str(place),
            value=sorted(manifest.batch_shift),
        )
