"""Takes users' feedback of one ingress into what it reports to the release desk."""

from pipeline.contract.bundle import BundleManifest
from serve_app.release.report import Feedback
from serve_app.release.traffic import TrafficLog
from serve_app.versions import Versions


class FeedbackTaker:
    """A ``FeedbackDesk``; feedback outside a release is judged and counted nowhere."""

    def __init__(self, versions: Versions, *, log: TrafficLog) -> None:
        """Take the versions that answer here and what gathers reports."""
        self._versions, self._log = versions, log

    def find_version(self, version: str) -> BundleManifest | None:
        """Return the manifest of a version that answers now, None for any other."""
        for service in self._versions.answering():
            if service.version == version:
                return service.served.bundle.manifest
        return None

    def add_feedback(self, feedback: Feedback) -> None:
        """Count it."""
        self._log.add_feedback(feedback)
