"""The numbers that serving works with: settings, else the tuning, else defaults that fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.contract.bundle import Bundle
from pipeline.contract.errors import ConfigError
from serve_app.config import ServeSettings
from serve_app.machine import usable_cpus
from serve_app.tuning_choice import TuningChoice
from serve_app.warm_up import MIN_TOKENS, warm_up_shapes

LaneName = Literal["short", "long"]

# Chosen for 2 cores, where batches of more tokens gain nothing (measured 2026-12-01).
_DEFAULT_BATCH_TOKENS = 512
_DEFAULT_BATCH_REQUESTS = 32
# A batch of 512 tokens keeps few threads busy, and another replica gains more; chosen.
_MOST_DEFAULT_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """The settings' numbers after the bundle and its tuning have had their say."""

    max_seq_len: int
    short_max_tokens: int
    max_batch_requests: int
    max_batch_tokens: int
    max_text_chars: int
    max_texts_per_request: int
    max_body_bytes: int
    max_queued_requests: int
    request_timeout_s: float
    threads_per_replica: int
    refuses_too_long: bool
    """Whether a text over ``max_seq_len`` is refused instead of cut."""
    origins: Mapping[str, str]
    """Field → ``setting``, ``tuning`` or ``default``, of those that a tuning can decide."""

    @property
    def tuned(self) -> dict[str, int]:
        """The values that a tuning can decide, by the names of their settings."""
        return {name: int(getattr(self, name)) for name in self.origins}

    def warm_up(self, lane: LaneName) -> list[tuple[int, int]]:
        """Return the (batch, seq) that a replica of a lane runs before its first request.

        A tuning lists the same ones, being made by the same function.
        """
        is_short = lane == "short"
        return warm_up_shapes(
            min_tokens=MIN_TOKENS if is_short else self.short_max_tokens + 1,
            max_tokens=self.short_max_tokens if is_short else self.max_seq_len,
            max_batch_tokens=self.max_batch_tokens,
            max_batch_requests=self.max_batch_requests,
        )


def resolve_limits(
    settings: ServeSettings,
    bundle: Bundle,
    choice: TuningChoice | None = None,
    *,
    cpus: int | None = None,
) -> ServingLimits:
    """Return the limits that hold for this bundle.

    Args:
        settings: what is set wins.
        bundle: what it cannot do is refused.
        choice: decides what is not set; None leaves it to defaults.
        cpus: what the machine gives; None asks it.

    Raises:
        ConfigError: a setting and the bundle cannot go together; both numbers are named.
    """
    given = bundle.manifest.limits
    _refuse_misfits(settings, bundle)
    defaults = {
        "threads_per_replica": default_threads(settings, cpus=cpus or usable_cpus()),
        "short_max_tokens": max(1, given.max_seq_len // 2),
        "max_batch_tokens": max(_DEFAULT_BATCH_TOKENS, given.max_seq_len),
        "max_batch_requests": min(_DEFAULT_BATCH_REQUESTS, given.max_batch_rows),
    }
    values: dict[str, int] = {}
    origins: dict[str, str] = {}
    for name, default in defaults.items():
        explicit = getattr(settings, name)
        values[name] = explicit or (getattr(choice, name) if choice else default)
        origins[name] = "setting" if explicit else "tuning" if choice else "default"
    if values["max_batch_requests"] > settings.max_queued_requests:
        values["max_batch_requests"] = settings.max_queued_requests
        origins["max_batch_requests"] = "setting max_queued_requests"
    return ServingLimits(
        max_seq_len=given.max_seq_len,
        max_text_chars=settings.max_text_chars or given.max_text_chars,
        max_texts_per_request=settings.max_texts_per_request,
        max_body_bytes=settings.max_body_bytes,
        max_queued_requests=settings.max_queued_requests,
        request_timeout_s=settings.request_timeout_s,
        refuses_too_long=settings.on_too_long == "reject",
        origins=origins,
        **values,
    )


def default_threads(settings: ServeSettings, *, cpus: int) -> int:
    """Return the threads of one lane replica where neither setting nor tuning says.

    What Ray reserves for it, where that is a CPU or more. Otherwise its share of the machine, 4 at
    most: two threads for each of two replicas on 2 CPUs wait for each other and the ingress.

    Args:
        settings: the reservation and the number of replicas.
        cpus: what a process may use of the machine, cgroup and affinity respected.

    Example: 2 replicas -> 1 thread on 2 CPUs, 2 on 4, 4 on 8 and on 64.
    """
    if settings.lane_num_cpus >= 1.0:
        return int(settings.lane_num_cpus)
    num_replicas = settings.replica_range("short")[1] + settings.replica_range("long")[1]
    return max(1, min(_MOST_DEFAULT_THREADS, cpus // num_replicas))


def _refuse_misfits(settings: ServeSettings, bundle: Bundle) -> None:
    given = bundle.manifest.limits
    max_batch_tokens, short_max_tokens = settings.max_batch_tokens, settings.short_max_tokens
    if max_batch_tokens is not None and given.max_seq_len > max_batch_tokens:
        raise ConfigError(
            f"max_batch_tokens {max_batch_tokens} is under the bundle's max_seq_len "
            f"{given.max_seq_len}: its longest text would not fit",
            remedy=f"Set max_batch_tokens to {given.max_seq_len} or more.",
        )
    _refuse_over("max_batch_requests", settings.max_batch_requests, given.max_batch_rows)
    _refuse_over("max_text_chars", settings.max_text_chars, given.max_text_chars)
    if short_max_tokens is not None and short_max_tokens >= given.max_seq_len:
        raise ConfigError(
            f"short_max_tokens {short_max_tokens} is not under the bundle's max_seq_len "
            f"{given.max_seq_len}: the long lane would never be used",
            remedy=f"Set short_max_tokens under {given.max_seq_len}, or to null to have it chosen.",
        )


def _refuse_over(name: str, value: int | None, most: int) -> None:
    if value is not None and value > most:
        raise ConfigError(
            f"{name} {value} is over the bundle's limit {most}",
            remedy=f"Set {name} to {most} or less, or export a bundle with a higher limit.",
        )
