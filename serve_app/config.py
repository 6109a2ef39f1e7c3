"""The serving schema: arguments of the Ray Serve file < environment < command line."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pipeline.contract.bundle import Bundle
from pipeline.contract.errors import ConfigError
from pipeline.contract.settings import (
    Loaded,
    Settings,
    read_yaml_mapping,
    settings_from_mapping,
)

ENV_PREFIX = "TEXTLANE_SERVE_"
_JOB_KEYS = {"data", "output_dir", "task", "train"}
"""Settings that stand in files of jobs and in no file of serving."""

Count = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0.0, strict=False)]


class ServeSettings(Settings):
    """How a bundle is served; ``null`` takes what the bundle says."""

    hint: ClassVar[str] = (
        "serve_app/config.py explains every setting, serve_app/config.yaml is a complete file."
    )

    bundle: Annotated[str, Field(min_length=1)]
    """Folder of the bundle; a relative path starts where the command is called."""
    model: Literal["model.onnx", "model_int8.onnx"] | None = None
    """Model file; null takes the bundle's default."""
    short_max_tokens: Count | None = None
    """Texts up to this many tokens go to the short lane; null: half of max_seq_len."""
    max_batch_requests: Annotated[int, Field(ge=1, le=1024)] = 32
    """Texts that a lane collects at most before it runs them."""
    batch_wait_timeout_ms: Annotated[float, Field(ge=0.0, strict=False)] = 10.0
    """Milliseconds that a lane waits for more texts; raising it adds latency at low load."""
    max_batch_tokens: Count = 512
    """Padded tokens (rows × longest) of one model run, 2 cores gain nothing above 512."""
    max_queued_requests: Count = 512
    """Texts that one ingress replica has in hand; more are refused with 503."""
    request_timeout_s: PositiveFloat = 30.0
    """Seconds from request to answer; later ones are given up with 504."""
    max_text_chars: Count | None = None
    """Characters of one text; null takes the bundle's limit, which cannot be raised."""
    max_texts_per_request: Count = 64
    """Texts in one request."""
    max_body_bytes: Count = 4 * 1024 * 1024
    """Bytes of one request's body."""
    threads_per_replica: Annotated[int, Field(ge=1, le=256)] = 2
    """ONNX Runtime threads of one lane replica."""
    ingress_replicas: Count = 1
    """Processes that speak HTTP and tokenise."""
    short_replicas: Count = 1
    """Processes that run short texts."""
    long_replicas: Count = 1
    """Processes that run long texts."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs; ``cuda`` needs onnxruntime-gpu and ``lane_num_gpus`` over 0."""
    lane_num_gpus: Annotated[float, Field(ge=0.0, strict=False)] = 0.0
    """Ray's GPU reservation of one lane replica, such as 0.5; Ray shows it no other GPU."""
    ingress_num_cpus: PositiveFloat = 0.2
    """Ray's CPU reservation of one ingress replica; bookkeeping, not a limit."""
    lane_num_cpus: PositiveFloat = 0.4
    """Ray's CPU reservation of one lane replica; all of them must fit on the cluster."""

    @model_validator(mode="after")
    def _refuse_impossible_pairs(self) -> "ServeSettings":
        small_large = (
            ("short_max_tokens", "max_batch_tokens"),
            ("max_batch_requests", "max_queued_requests"),
            ("max_texts_per_request", "max_queued_requests"),
            ("max_text_chars", "max_body_bytes"),
        )
        for small, large in small_large:
            low, high = getattr(self, small), getattr(self, large)
            if low is not None and low > high:
                raise ValueError(
                    f"{small} {low} is over {large} {high}. Lower {small} or raise {large}."
                )
        if (self.device == "cuda") != (self.lane_num_gpus > 0.0):
            raise ValueError(
                f"device {self.device} and lane_num_gpus {self.lane_num_gpus:g} do not fit. "
                "Set device to cuda and lane_num_gpus to 0.5, or device to cpu and "
                "lane_num_gpus to 0."
            )
        if self.batch_wait_timeout_ms >= self.request_timeout_s * 1000.0:
            raise ValueError(
                f"batch_wait_timeout_ms {self.batch_wait_timeout_ms:g} is not under "
                f"request_timeout_s {self.request_timeout_s:g}: every request would be late. "
                "Lower the first or raise the second."
            )
        return self


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """The settings' numbers after the bundle has had its say."""

    max_seq_len: int
    short_max_tokens: int
    max_batch_requests: int
    max_batch_tokens: int
    max_text_chars: int
    max_texts_per_request: int
    max_body_bytes: int
    max_queued_requests: int
    request_timeout_s: float


def load_serve_settings(file: Path, sets: Sequence[str] = ()) -> Loaded[ServeSettings]:
    """Return the settings of a Ray Serve file's application, or of a plain YAML mapping.

    Raises:
        ConfigError: with field, value and remedy.
    """
    values = read_yaml_mapping(file, hint=ServeSettings.hint)
    if "applications" in values:
        values = _application_arguments(values, file)
    elif _JOB_KEYS & values.keys():
        raise ConfigError(
            "this is the file of a job; --config takes the Ray Serve file here",
            place=str(file),
            remedy=f"Leave --config out and name the bundle: --bundle "
            f"{values.get('output_dir', 'OUTPUT_DIR')}/bundle.",
        )
    return _from_mapping(values, source=str(file), sets=sets)


def settings_from_arguments(arguments: Mapping[str, Any]) -> ServeSettings:
    """Return the settings that Ray Serve hands to the application builder.

    Raises:
        ConfigError: with field, value and remedy.
    """
    return _from_mapping(arguments, source="arguments of the application").settings


def _from_mapping(
    values: Mapping[str, Any], *, source: str, sets: Sequence[str] = ()
) -> Loaded[ServeSettings]:
    _refuse_single_underscores()
    return settings_from_mapping(
        ServeSettings, values, source=source, env_prefix=ENV_PREFIX, sets=sets
    )


def _refuse_single_underscores() -> None:
    # A setting of serving without a section is told from one of a job by its two underscores.
    for name, value in sorted(os.environ.items()):
        if name.startswith(ENV_PREFIX) and not name.startswith(f"{ENV_PREFIX}_"):
            setting = name.removeprefix(ENV_PREFIX)
            raise ConfigError(
                "unknown setting",
                place=f"environment {name}",
                value=value,
                remedy=f"Write {ENV_PREFIX}_{setting}, with two underscores after SERVE."
                if setting.lower() in ServeSettings.model_fields
                else f"Take it out; settings of serving begin with {ENV_PREFIX}_.",
            )


def _application_arguments(values: Mapping[str, Any], file: Path) -> dict[str, Any]:
    applications = values["applications"]
    if not isinstance(applications, list) or len(applications) != 1:
        raise ConfigError(
            "the file must name exactly one application", place=f"{file}: applications"
        )
    application = applications[0]
    arguments = application.get("args", {}) if isinstance(application, dict) else None
    if not isinstance(arguments, dict):
        raise ConfigError("args must be a mapping", place=f"{file}: applications.0.args")
    return arguments


def resolve_limits(settings: ServeSettings, bundle: Bundle) -> ServingLimits:
    """Return the limits that hold for this bundle.

    Raises:
        ConfigError: a setting and the bundle cannot go together; both numbers are named.
    """
    given = bundle.manifest.limits
    if given.max_seq_len > settings.max_batch_tokens:
        raise ConfigError(
            f"max_batch_tokens {settings.max_batch_tokens} is under the bundle's max_seq_len "
            f"{given.max_seq_len}: its longest text would not fit",
            remedy=f"Set max_batch_tokens to {given.max_seq_len} or more.",
        )
    _refuse_over("max_batch_requests", settings.max_batch_requests, given.max_batch_rows)
    _refuse_over("max_text_chars", settings.max_text_chars, given.max_text_chars)
    short_max_tokens = settings.short_max_tokens or given.max_seq_len // 2
    if short_max_tokens >= given.max_seq_len:
        raise ConfigError(
            f"short_max_tokens {short_max_tokens} is not under the bundle's max_seq_len "
            f"{given.max_seq_len}: the long lane would never be used",
            remedy=f"Set short_max_tokens under {given.max_seq_len}, or to null for half of it.",
        )
    return ServingLimits(
        max_seq_len=given.max_seq_len,
        short_max_tokens=short_max_tokens,
        max_batch_requests=settings.max_batch_requests,
        max_batch_tokens=settings.max_batch_tokens,
        max_text_chars=settings.max_text_chars or given.max_text_chars,
        max_texts_per_request=settings.max_texts_per_request,
        max_body_bytes=settings.max_body_bytes,
        max_queued_requests=settings.max_queued_requests,
        request_timeout_s=settings.request_timeout_s,
    )


def _refuse_over(name: str, value: int | None, most: int) -> None:
    if value is not None and value > most:
        raise ConfigError(
            f"{name} {value} is over the bundle's limit {most}",
            remedy=f"Set {name} to {most} or less, or export a bundle with a higher limit.",
        )
