"""Opens the bundle that the settings name, the same way in every process."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.contract.bundle import Bundle, demand_bundle, load_bundle
from pipeline.contract.errors import AlteredFileError
from serve_app.config import ServeSettings
from serve_app.limits import ServingLimits, resolve_limits
from serve_app.tuning import find_tuning


@dataclass(frozen=True, kw_only=True)
class Served:
    """A verified bundle with the limits it is served under."""

    bundle: Bundle
    limits: ServingLimits
    model_path: Path
    tuning_note: str | None
    """Why a tuning that is there was not heeded; None if it was, or if there is none."""

    @property
    def version(self) -> str:
        """Name of exactly these bytes and this model file, as answers carry it."""
        return f"{self.bundle.version}/{self.model_path.name}"

    @property
    def origins_line(self) -> str:
        """The values that a tuning can decide, each with where it came from."""
        origins = self.limits.origins
        values = (f"{name} {value} ({origins[name]})" for name, value in self.limits.tuned.items())
        return f"serving {self.version} with {', '.join(values)}"


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
        FolderError: the folder is not a bundle or lacks the model, or the tuning that the
            settings name is damaged.
        ConfigError: settings and bundle cannot go together.
    """
    bundle = load_served_bundle(Path(settings.bundle), named_by=named_by)
    model_path = bundle.model_path(settings.model)
    tuning = find_tuning(settings, bundle=bundle, model=model_path.name)
    served = Served(
        bundle=bundle,
        limits=resolve_limits(settings, bundle, tuning.choice),
        model_path=model_path,
        tuning_note=tuning.note,
    )
    if expected_version not in (None, served.version):
        raise AlteredFileError(
            f"the bundle was replaced after serving began with {expected_version}",
            place=str(bundle.folder),
            value=served.version,
            remedy="Deploy the application again to serve the new bundle.",
        )
    return served


def load_served_bundle(folder: Path, *, named_by: str) -> Bundle:
    """Return a bundle, every byte checked, its folder absolute.

    Args:
        folder: a relative one starts in the working folder.
        named_by: where the caller's user names a bundle, for the remedy.

    Raises:
        MissingFileError: there is no bundle, or one of its files is not there.
        AlteredFileError: a file was changed.
        FolderError: the folder is not a bundle.
    """
    folder = folder.resolve()
    demand_bundle(folder, named_by=named_by)
    return load_bundle(folder)
