"""What `textlane doctor` looks at, in which order."""

from dataclasses import dataclass
from pathlib import Path

from cluster.doctor.discovery import find_discovery_files, find_service_url, read_targets
from cluster.doctor.observations import Observations, QualityObservation
from cluster.doctor.quality_view import observe_quality
from cluster.doctor.scraping import Scraper
from cluster.doctor.serving_view import observe_serving
from cluster.doctor.training_view import observe_training
from pipeline.contract.bundle import load_bundle
from pipeline.contract.errors import CommandError

_AS_SENT = (
    "body_too_large",
    "empty_text",
    "invalid_request",
    "text_too_long",
    "too_many_texts",
    "too_many_tokens",
    "unauthorized",
)
"""Outcomes of requests at whose faults no setting helps."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """What to look at. Without bundle and checkpoint it is the service of this machine."""

    url: str | None = None
    """Where the service answers; None: beside the discovery file, or Ray Serve's default."""
    metrics: tuple[str, ...] = ()
    """URLs of metrics; none: what the discovery file names."""
    discovery: Path | None = None
    """Ray's service discovery file; None: the one on this machine whose Ray answers."""
    seconds: float = 20.0
    api_key: str | None = None
    checkpoint: Path | None = None
    bundle: Path | None = None

    @property
    def looks_at_serving(self) -> bool:
        """Whether the service is looked at."""
        is_named = self.url is not None or bool(self.metrics) or self.discovery is not None
        return is_named or (self.checkpoint is None and self.bundle is None)


def examine(options: DoctorOptions) -> Observations:
    """Return all that could be observed.

    Raises:
        CommandError: the metrics cannot be read, or are not textlane's.
        FolderError: (or a subtype) there is no such bundle, or no training in the folder.
    """
    training = observe_training(options.checkpoint) if options.checkpoint else None
    quality = _observe_bundle(options.bundle) if options.bundle else None
    if not options.looks_at_serving:
        return Observations(training=training, quality=quality)
    seen = _examine_serving(Scraper(), options)
    return Observations(
        serving=seen.serving,
        is_ready=seen.is_ready,
        ready_answer=seen.ready_answer,
        training=training,
        quality=quality or seen.quality,
        notes=seen.notes,
    )


def _observe_bundle(folder: Path) -> QualityObservation | None:
    manifest = load_bundle(folder).manifest
    return observe_quality(manifest.quality, served=manifest.default_model)


def _examine_serving(scraper: Scraper, options: DoctorOptions) -> Observations:
    discovery = options.discovery
    if discovery is None and not options.metrics:
        discovery = _find_living(scraper)
    targets = list(options.metrics) or (read_targets(discovery) if discovery else [])
    base_url = (options.url or find_service_url(discovery)).rstrip("/")
    readiness = scraper.readiness(base_url)
    model = scraper.model(base_url, api_key=options.api_key)
    serving = observe_serving(scraper.watch(targets, seconds=options.seconds))
    if serving is None:
        raise CommandError(
            "these metrics are of a Ray on which textlane does not serve",
            place=", ".join(targets),
            remedy="Start `textlane serve`, send a request, and ask again.",
        )
    notes = []
    if serving.num_requests == 0:
        notes.append("no prediction was asked for yet, so only settings and start are judged")
    refused = sum(serving.outcomes.get(name, 0) for name in _AS_SENT)
    if refused:
        notes.append(f"{refused} requests could not be answered as sent, which is their senders'")
    if not serving.ingress_settings:
        notes.append("the replicas told no settings; they are told with each health check, 2 s")
    if model is None:
        notes.append(f"{base_url}/v1/model did not answer, so quality was not looked at")
    return Observations(
        serving=serving,
        is_ready=readiness.is_ready,
        ready_answer=readiness.answer,
        quality=_observe_model(model) if model else None,
        notes=tuple(notes),
    )


def _observe_model(model: dict[str, object]) -> QualityObservation | None:
    # A version ends with the model file.
    served = str(model["version"]).rpartition("/")[2]
    return observe_quality(model.get("quality"), served=served)


def _find_living(scraper: Scraper) -> Path:
    """Return the discovery file whose Ray answers.

    Raises:
        CommandError: there is none, or more than one.
    """
    # A Ray that was killed leaves its file behind.
    living = [
        path
        for path in find_discovery_files()
        if scraper.serves_session(read_targets(path), path.parent.name)
    ]
    if len(living) == 1:
        return living[0]
    if not living:
        raise CommandError(
            "no Ray runs on this machine that doctor can find",
            remedy="Start `textlane serve`, or name its metrics with --metrics URL; for a training "
            "or a bundle give --checkpoint or --bundle.",
        )
    raise CommandError(
        f"{len(living)} Rays run on this machine",
        value=[str(path) for path in living],
        remedy="Name one of the files with --discovery.",
    )
