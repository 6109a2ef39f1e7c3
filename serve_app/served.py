"""Opens the bundle that the settings name, the same way in every process."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.contract.bundle import Bundle, load_bundle
from pipeline.contract.errors import AlteredFileError, MissingFileError
from pipeline.contract.folder import MANIFEST_NAME
from serve_app.config import ServeSettings, ServingLimits, resolve_limits


@dataclass(frozen=True, kw_only=True)
class Served:
    """A verified bundle with the limits it is served under."""

    bundle: Bundle
    limits: ServingLimits
    model_path: Path

    @property
    def version(self) -> str:
        """Name of exactly these bytes and this model file, as answers carry it."""
        return f"{self.bundle.version}/{self.model_path.name}"


_BY_SETTING = "the variable TEXTLANE_SERVE__BUNDLE (`bundle` in the serving file)"


def open_served(
    settings: ServeSettings,
    *,
    expected_version: str | None = None,
    named_by: str = _BY_SETTING,
) -> Served:
    """Return the bundle of the settings, every byte checked.

    Args:
        settings: a relative ``bundle`` starts in the working folder.
        expected_version: refuse any other; replicas pass what the application was built
            with, so that two replicas never answer from different bundles.
        named_by: where the caller's user names a bundle, for the remedy.

    Raises:
        MissingFileError: there is no bundle; names the absolute path and the remedy.
        AlteredFileError: a file was changed, or the version is not the expected one.
        FolderError: the folder is not a bundle or lacks the model.
        ConfigError: settings and bundle cannot go together.
    """
    folder = Path(settings.bundle).resolve()
    if not (folder / MANIFEST_NAME).is_file():
        raise _no_bundle(folder, named_by)
    bundle = load_bundle(folder)
    served = Served(
        bundle=bundle,
        limits=resolve_limits(settings, bundle),
        model_path=bundle.model_path(settings.model),
    )
    if expected_version not in (None, served.version):
        raise AlteredFileError(
            f"the bundle was replaced after serving began with {expected_version}",
            place=str(folder),
            value=served.version,
            remedy="Deploy the application again to serve the new bundle.",
        )
    return served


def _no_bundle(folder: Path, named_by: str) -> MissingFileError:
    remedy = f"Run `make demo` to make one, or set {named_by} to the folder of yours."
    if (folder / "bundle" / MANIFEST_NAME).is_file():
        remedy = f"Did you mean {folder / 'bundle'}? Set {named_by} to it."
    return MissingFileError("there is no bundle here", place=str(folder), remedy=remedy)
