"""Reads single figures out of a bundle's manifest, where export recorded them."""

from typing import Any

from pydantic import ValidationError

from pipeline.contract.bundle import BatchShift, BundleManifest
from pipeline.contract.errors import ExportError
from pipeline.contract.folder import MANIFEST_NAME


def read_figure(manifest: BundleManifest, *keys: str) -> Any:
    """Return ``quality[key][key]…``.

    Raises:
        ExportError: it is not there; names it.

    Example: ``read_figure(manifest, "parity", "atol")`` -> ``0.0001``.
    """
    found: Any = manifest.quality
    for index, key in enumerate(keys):
        if not isinstance(found, dict) or key not in found:
            raise ExportError(
                "the manifest lacks a figure that this check compares with",
                place=MANIFEST_NAME,
                value=" → ".join(("quality", *keys[: index + 1])),
                remedy="Export the bundle again with this version.",
            )
        found = found[key]
    return found


def read_shift(manifest: BundleManifest, *keys: str) -> BatchShift:
    """Return a figure that must be a batch shift, as :func:`read_figure` does.

    Raises:
        ExportError: it is not there or no batch shift.
    """
    found = read_figure(manifest, *keys)
    try:
        return BatchShift.model_validate(found)
    except ValidationError:
        raise ExportError(
            f"quality → {' → '.join(keys)} must hold a logit's and a probability's shift, "
            "numbers not under 0",
            place=MANIFEST_NAME,
            value=found,
            remedy="Export the bundle again with this version.",
        ) from None


def read_number(manifest: BundleManifest, *keys: str) -> float:
    """Return a figure that must be a number, as :func:`read_figure` does.

    Raises:
        ExportError: it is not there or no number.
    """
    found = read_figure(manifest, *keys)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ExportError(
            f"quality → {' → '.join(keys)} must be a number",
            place=MANIFEST_NAME,
            value=found,
            remedy="Export the bundle again with this version.",
        )
    return float(found)
