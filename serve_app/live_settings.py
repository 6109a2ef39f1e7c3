"""Settings that a running replica takes from its deployment's ``user_config``, without restart."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from pipeline.contract.bundle import Bundle
from pipeline.contract.errors import ConfigError
from pipeline.contract.setting_mistakes import describe_mistake
from serve_app.config import ServeSettings
from serve_app.limits import resolve_limits

LANE_LIVE = (
    "max_batch_tokens",
    "max_batch_requests",
    "batch_wait_timeout_ms",
    "wait_when_idle",
    "window_batches",
    "run_cost_tokens",
)
"""What a lane takes while it runs."""
INGRESS_LIVE = ("max_queued_requests", "on_too_long", "coalesce_ms", "log_texts")
"""What an ingress takes while it runs."""
LIVE_NAMES: Mapping[str, Sequence[str]] = {
    "Ingress": INGRESS_LIVE,
    "ShortLane": LANE_LIVE,
    "LongLane": LANE_LIVE,
    "ReleaseDesk": (),
}
"""Deployment → what it takes while it runs."""
_ORIGIN = "user_config"
_PLACE = "deployments"


def live_values(settings: ServeSettings, names: Sequence[str]) -> dict[str, Any]:
    """Return the settings of these names, as a complete ``user_config``."""
    return {name: getattr(settings, name) for name in names}


def with_live_values(
    built: ServeSettings, user_config: object, *, names: Sequence[str], origin: str = _ORIGIN
) -> ServeSettings:
    """Return the settings that hold from now on.

    Args:
        built: those that the application was built with.
        user_config: what differs from them; a null, and what is left out, is as built.
        names: what may differ.
        origin: what errors call it.

    Raises:
        ConfigError: a name or value cannot be; names it, and the remedy.
    """
    if not isinstance(user_config, Mapping):
        raise ConfigError(
            "it must be a mapping of settings",
            place=origin,
            value=user_config,
            remedy="Write `name: value` lines; "
            + (f"names are {', '.join(names)}." if names else "here none may stand: {}."),
        )
    given = {str(name): value for name, value in user_config.items() if value is not None}
    for name in given:
        _demand_live(name, given[name], names, origin)
    whole = {name: getattr(built, name) for name in ServeSettings.model_fields}
    try:
        settings = ServeSettings.model_validate({**whole, **given})
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        hint = ServeSettings.hint
        raise describe_mistake(ServeSettings, mistake, origin=origin, hint=hint) from None
    if settings.max_queued_requests > built.max_queued_requests:
        # Ray refuses calls at a number that is derived from it and stays.
        raise ConfigError(
            f"it is over {built.max_queued_requests}, which the application was built with",
            place=f"{origin}: max_queued_requests",
            value=settings.max_queued_requests,
            remedy="Raise it under args; then replicas restart.",
        )
    return settings


def check_deployments(built: ServeSettings, bundle: Bundle, deployments: object) -> None:
    """Check the ``user_config`` of each deployment in a Ray Serve file, before anything starts.

    Args:
        built: the settings that the application is built with.
        bundle: what it serves.
        deployments: the application's ``deployments`` of the file.

    Raises:
        ConfigError: an entry is for no deployment of ours, or asks for what cannot be.
    """
    if not isinstance(deployments, list):
        raise ConfigError("it must be a list", place=_PLACE, value=deployments)
    for entry in deployments:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or name not in LIVE_NAMES:
            near = difflib.get_close_matches(str(name), LIVE_NAMES, 1) or LIVE_NAMES
            raise ConfigError(
                "each entry needs the name of a deployment",
                place=_PLACE,
                value=entry if name is None else name,
                remedy=f"Write `name: {' or '.join(near)}`.",
            )
        user_config = entry.get(_ORIGIN)
        if user_config is not None:
            _check_user_config(built, bundle, name, user_config)


def _check_user_config(
    built: ServeSettings, bundle: Bundle, name: str, user_config: object
) -> None:
    origin = f"{_PLACE}: {name}: {_ORIGIN}"
    names = LIVE_NAMES[name]
    settings = with_live_values(built, user_config, names=names, origin=origin)
    try:
        resolve_limits(settings, bundle)
    except ConfigError as error:
        raise ConfigError(error.problem, place=origin, remedy=error.remedy) from None


def _demand_live(name: str, value: object, names: Sequence[str], origin: str) -> None:
    if name not in names:
        is_known = name in ServeSettings.model_fields
        raise ConfigError(
            "this deployment cannot change it while it runs" if is_known else "unknown setting",
            place=f"{origin}: {name}",
            value=value,
            remedy=("Set it under args; then replicas restart. " if is_known else "")
            + (f"Here may stand {', '.join(names)}." if names else "It takes none here."),
        )
