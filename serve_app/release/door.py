"""What people may ask of the release desk; no Ray, no HTTP."""

from collections.abc import Mapping
from typing import Any, Protocol

from serve_app.release.status import ReleaseHistory, ReleaseStatus


class ReleaseDeskDoor(Protocol):
    """What the admin application asks; all but the last two change the release.

    Each returns the status after it. Any of them may raise NotReadyError: the desk cannot tell
    yet, or its folder cannot be written.
    """

    async def start(self, bundle: str, *, plan: Mapping[str, Any] | None) -> ReleaseStatus:
        """Start a release; returns as soon as it is under way, in state ``starting``.

        Args:
            bundle: folder of the candidate, as the cluster sees it.
            plan: what a plan file holds; None: the default plan.

        Raises:
            ConfigError: the plan cannot be used.
            FolderError: (or a subtype) the bundle cannot be used.
            ReleaseConflictError: a release is under way, or the bundle is the stable one.
        """
        ...

    async def pause(self) -> ReleaseStatus:
        """Hold the weight; checks go on, and hard limits still roll back.

        Raises:
            ReleaseConflictError: no release is running.
        """
        ...

    async def resume(self) -> ReleaseStatus:
        """Go on after a pause.

        Raises:
            ReleaseConflictError: no release is paused.
        """
        ...

    async def promote(self) -> ReleaseStatus:
        """Make the candidate the stable version now, whatever the checks say.

        Raises:
            ReleaseConflictError: no release is running or paused.
        """
        ...

    async def abort(self) -> ReleaseStatus:
        """Give all traffic back to the stable version now.

        Raises:
            ReleaseConflictError: no release is under way.
        """
        ...

    async def status(self) -> ReleaseStatus:
        """Return how the release stands."""
        ...

    async def history(self) -> ReleaseHistory:
        """Return the finished releases, the newest first."""
        ...
