"""Settings that a running replica takes from its deployment's ``user_config``, without restart."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from pipeline.contract.errors import ConfigError
from pipeline.contract.setting_mistakes import describe_mistake
from serve_app.config import ServeSettings

LANE_LIVE = (
    "max_batch_tokens",
    "max_batch_requests",
    "batch_wait_timeout_ms",
    "wait_when_idle",
    "window_batches",
)
"""What a lane takes while it runs."""
INGRESS_LIVE = ("max_queued_requests", "on_too_long", "coalesce_ms", "log_texts")
"""What an ingress takes while it runs."""
_ORIGIN = "user_config"


def live_values(settings: ServeSettings, names: Sequence[str]) -> dict[str, Any]:
    """Return the settings of these names, as a complete ``user_config``."""
    return {name: getattr(settings, name) for name in names}


def with_live_values(
    built: ServeSettings, user_config: object, *, names: Sequence[str]
) -> ServeSettings:
    """Return the settings that hold from now on.

    Args:
        built: those that the application was built with.
        user_config: what differs from them; a null, and what is left out, is as built.
        names: what may differ.

    Raises:
        ConfigError: a name or value cannot be; names it, and the remedy.
    """
    if not isinstance(user_config, Mapping):
        raise ConfigError(
            "it must be a mapping of settings",
            place=_ORIGIN,
            value=user_config,
            remedy=f"Write `name: value` lines; names are {', '.join(names)}.",
        )
    given = {str(name): value for name, value in user_config.items() if value is not None}
    for name in given:
        _demand_live(name, given[name], names)
    whole = {name: getattr(built, name) for name in ServeSettings.model_fields}
    try:
        settings = ServeSettings.model_validate({**whole, **given})
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        hint = ServeSettings.hint
        raise describe_mistake(ServeSettings, mistake, origin=_ORIGIN, hint=hint) from None
    if settings.max_queued_requests > built.max_queued_requests:
        # Ray refuses calls at a number that is derived from it and stays.
        raise ConfigError(
            f"it is over {built.max_queued_requests}, which the application was built with",
            place=f"{_ORIGIN}: max_queued_requests",
            value=settings.max_queued_requests,
            remedy="Raise it under args; then replicas restart.",
        )
    return settings


def _demand_live(name: str, value: object, names: Sequence[str]) -> None:
    if name not in names:
        is_known = name in ServeSettings.model_fields
        raise ConfigError(
            "this deployment cannot change it while it runs" if is_known else "unknown setting",
            place=f"{_ORIGIN}: {name}",
            value=value,
            remedy=("Set it under args; then replicas restart. " if is_known else "")
            + f"Here may stand {', '.join(names)}.",
        )
