"""The serving schema: arguments of the Ray Serve file < environment < command line."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from pipeline.contract.batching import RUN_TOKENS
from pipeline.contract.bundle import ModelName
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
_MIN_KEY_CHARS = 8
PositiveFloat = Annotated[float, Field(gt=0.0, strict=False)]


def _check_keys(keys: object) -> object:
    # Pydantic's own complaints quote the value, which is a secret here.
    if keys is not None and (not isinstance(keys, list) or not keys):
        raise ValueError('must be a list of keys, such as ["a-long-random-key"], or null')
    for key in keys or ():
        if not isinstance(key, str | SecretStr) or len(key) < _MIN_KEY_CHARS:
            raise ValueError(f"each key must be a string of {_MIN_KEY_CHARS} or more characters")
    return keys


def _check_replicas(given: object) -> object:
    # The union's own complaint would be about a number and about a list.
    numbers: list[Any] = [*given] if isinstance(given, list | tuple) else [given]
    are_counts = all(type(number) is int and number >= 1 for number in numbers)
    if not are_counts or (isinstance(given, list | tuple) and len(numbers) != 2):
        raise ValueError(
            "it must be a whole number from 1, or two of them such as [1, 4] for the least and "
            f"the most, got {given!r}"
        )
    if numbers[0] > numbers[-1]:
        raise ValueError(f"{numbers} has its least over its most. Swap them.")
    return given


Replicas = Annotated[
    int | Annotated[tuple[int, int], Field(strict=False)],
    BeforeValidator(_check_replicas),
]
"""A number, or the least and the most."""
ApiKeys = Annotated[list[SecretStr] | None, BeforeValidator(_check_keys)]
"""Printed as asterisks wherever settings are shown."""


class ServeSettings(Settings):
    """How a bundle is served; ``null`` takes what its tuning or the bundle says."""

    hint: ClassVar[str] = (
        "serve_app/config.py explains every setting, serve_app/config.yaml is a complete file."
    )

    bundle: Annotated[str, Field(min_length=1)]
    """Folder of the bundle; a relative path starts where the command is called."""
    model: ModelName | None = None
    """Model file; null takes the bundle's default."""
    tuning: Annotated[str, Field(min_length=1)] | None = None
    """File that `textlane tune` wrote; null: ``<bundle>.tuning.json`` if it is there and for
    this bundle, model file and machine. It decides the next four that are null."""
    threads_per_replica: Annotated[int, Field(ge=1, le=256)] | None = None
    """ONNX Runtime threads of one lane replica; null: what the tuning says, else
    ``lane_num_cpus`` from 1 on, else the replica's share of the machine's CPUs, 4 at most (2
    where both lanes have one replica on 2 to 5 CPUs)."""
    short_max_tokens: Count | None = None
    """Texts up to this many tokens go to the short lane; null: what the tuning says, else half
    of max_seq_len."""
    max_batch_tokens: Count | None = None
    """Padded tokens (rows × longest) of one model run; null: what the tuning says, else 512 or
    max_seq_len. Over what the machine needs, more only adds waiting."""
    max_batch_requests: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Texts of one model run, and calls that are collected for it; null: what the tuning says,
    else 32, or what the bundle allows."""
    batch_wait_timeout_ms: Annotated[float, Field(ge=0.0, strict=False)] = 10.0
    """Milliseconds that calls to a lane are collected, while a full batch waits there already."""
    wait_when_idle: bool = False
    """Collect calls that long also when no full batch waits; a lone request then pays it."""
    window_batches: Annotated[int, Field(ge=1, le=64)] = 4
    """Full batches' worth of waiting texts that a lane sorts together; more means less padding
    under load, and more texts that may run before an older one."""
    run_cost_tokens: Annotated[int, Field(ge=0, le=100_000)] = RUN_TOKENS
    """What a model run costs beside its padded tokens, in tokens; 27 was measured on CPUs. More
    makes fuller batches with more padding: right where a run itself is dear, as on a GPU."""
    short_concurrent_runs: Annotated[int, Field(ge=1, le=64)] | None = None
    """Model runs that one short lane replica has under way at once; null: 2 on a CPU, where the
    second uses what the first leaves idle, 1 on a GPU. A long lane replica has one."""
    coalesce_ms: Annotated[float, Field(ge=0.0, le=100.0, strict=False)] = 2.0
    """Milliseconds that an ingress collects texts for one call while another is under way."""
    max_queued_requests: Count = 512
    """Texts that one ingress replica has in hand; more are refused with 429."""
    request_timeout_s: PositiveFloat = 30.0
    """Seconds from request to answer; later ones are given up with 504."""
    max_text_chars: Count | None = None
    """Characters of one text; null takes the bundle's limit, which cannot be raised."""
    max_texts_per_request: Count = 64
    """Texts in one request."""
    max_body_bytes: Count = 4 * 1024 * 1024
    """Bytes of one request's body."""
    on_too_long: Literal["truncate", "reject"] = "truncate"
    """A text of over max_seq_len tokens: cut off its end and say so, or refuse it with 422."""
    api_keys: ApiKeys = None
    """Who sends none of these keys gets 401 from ``/v1/…``; null asks for none. Set it from the
    environment (``TEXTLANE_SERVE__API_KEYS='[…]'``) rather than in a file that others read."""
    log_texts: bool = False
    """Put the texts into the log line of their request; off, because texts are private."""
    release_dir: Annotated[str, Field(min_length=1)] | None = None
    """Folder in which the release desk keeps what must outlive it, on storage that every node of
    the cluster has; null: ``<bundle>.release`` beside the bundle."""
    admin_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address on which releases are started and watched, on the node where the desk runs; any
    but this machine's own needs ``admin_keys``."""
    admin_port: Annotated[int, Field(ge=0, le=65535)] = 8002
    """Its port; 0 takes a free one, which the desk's log names."""
    admin_keys: ApiKeys = None
    """Who sends none of these keys may neither start nor see a release; as ``api_keys``."""
    ingress_replicas: Count = 1
    """Processes that speak HTTP and tokenise."""
    short_replicas: Replicas = 1
    """Processes that run short texts; ``[least, most]`` has as many as the work needs."""
    long_replicas: Replicas = 1
    """Processes that run long texts; ``[least, most]`` has as many as the work needs."""
    scale_up_delay_s: PositiveFloat = 10.0
    """Seconds that over two full batches must wait for each replica before one is added. Less
    pays only if a burst lasts longer than a replica takes to start, 5 to 10 s."""
    scale_down_delay_s: PositiveFloat = 300.0
    """Seconds that a replica must have been superfluous before it is taken away; more than the
    pauses between two bursts, so that they find the replicas still there."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs; ``cuda`` needs onnxruntime-gpu and ``lane_num_gpus`` over 0."""
    lane_num_gpus: Annotated[float, Field(ge=0.0, strict=False)] = 0.0
    """Ray's GPU reservation of one lane replica, such as 0.5; Ray shows it no other GPU."""
    ingress_num_cpus: PositiveFloat = 0.2
    """Ray's CPU reservation of one ingress replica; bookkeeping, not a limit."""
    lane_num_cpus: PositiveFloat = 0.4
    """Ray's CPU reservation of one lane replica; all of them must fit on the cluster. From 1 on
    it is also the number of threads, unless that is set or tuned."""

    @property
    def release_folder(self) -> Path:
        """What ``release_dir`` says or leaves open."""
        bundle = Path(self.bundle)
        given = self.release_dir
        return Path(given) if given else bundle.with_name(f"{bundle.name}.release")

    def replica_range(self, lane: Literal["short", "long"]) -> tuple[int, int]:
        """Return the least and the most replicas of a lane."""
        given = self.short_replicas if lane == "short" else self.long_replicas
        return given if isinstance(given, tuple) else (given, given)

    def concurrent_runs(self, lane: Literal["short", "long"]) -> int:
        """Return how many model runs a replica of a lane has under way at once."""
        if lane == "long":
            return 1
        return self.short_concurrent_runs or (2 if self.device == "cpu" else 1)

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
            if low is not None and high is not None and low > high:
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
class RayServeSettings:
    """What Ray Serve itself was started with."""

    with_haproxy: bool
    is_throughput_optimized: bool


def read_ray_serve_settings() -> RayServeSettings:
    """Return them as this process's environment has them, which is that of Ray's start."""
    return RayServeSettings(
        with_haproxy=os.environ.get("RAY_SERVE_ENABLE_HA_PROXY", "0") == "1",
        is_throughput_optimized=os.environ.get("RAY_SERVE_THROUGHPUT_OPTIMIZED", "0") == "1",
    )


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
