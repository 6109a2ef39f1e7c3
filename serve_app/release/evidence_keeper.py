"""Keeps the evidence of the release and step that the desk is in, also over a restart."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.contract.bundle import BundleManifest
from pipeline.contract.errors import FolderError, TextlaneError
from pipeline.contract.profile import TrainingProfile, length_edges
from serve_app.release.evidence import Evidence, evidence_of
from serve_app.release.state import Release, ReleaseState
from serve_app.release.store import ReleaseStore

SAVE_EVERY_S = 5.0
"""Seconds between two savings; what came later is observed anew after a kill."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A bundle that can be served, with the settings of the service."""

    version: str
    folder: str
    """Absolute."""
    manifest: BundleManifest

    @property
    def tolerance(self) -> float:
        """How far a probability moves with the batch that a text is run in, by the bundle."""
        model = self.version.rpartition("/")[2]
        shifts = {str(name): shift for name, shift in self.manifest.batch_shift.items()}
        return shifts[model].probability if model in shifts else 0.0


class BundleShelf:
    """Opens bundles, each version's manifest but once."""

    def __init__(self, open_bundle: Callable[[str], Opened]) -> None:
        """Take what opens a folder's bundle, every byte checked; it may block."""
        self._open = open_bundle
        self._opened: dict[str, Opened] = {}

    async def open(self, folder: str) -> Opened:
        """Return the bundle of a folder as it is now.

        Raises:
            FolderError: (or a subtype) there is none, or it is damaged.
            ConfigError: it cannot be served with these settings.
        """
        opened = await asyncio.to_thread(self._open, folder)
        self._opened[opened.version] = opened
        return opened

    def profiles(self) -> Mapping[str, TrainingProfile]:
        """Return what is known of the opened versions' training texts."""
        return {name: one.manifest.profile for name, one in self._opened.items()}

    async def recall(self, version: str, *, folder: str) -> Opened:
        """Return a version that was opened before, or open its folder.

        Raises:
            FolderError: as ``open``.
            ConfigError: as ``open``.
        """
        return self._opened[version] if version in self._opened else await self.open(folder)


class EvidenceKeeper:
    """Holds what the checks look at; used from one event loop."""

    def __init__(self, store: ReleaseStore, *, shelf: BundleShelf, logger: logging.Logger) -> None:
        """Begin without evidence."""
        self.now: Evidence | None = None
        self._store = store
        self._shelf = shelf
        self._logger = logger
        self._saved_at = 0.0
        self._said = ""

    async def follow(self, state: ReleaseState) -> None:
        """Have the evidence of the state's release and step; none where there is no release.

        Without evidence nothing is decided: a candidate whose bundle cannot be read takes no step.
        """
        release, evidence = state.release, self.now
        if release is None:
            self.now = None
            return
        if evidence is None or evidence.release_id != release.release_id:
            try:
                evidence = await self._open(release, state)
            except TextlaneError as error:
                self._say(f"the release cannot be judged: {error}")
                self.now = None
                return
        if evidence.step != release.step and release.step >= 0:
            evidence.begin_step(
                step=release.step,
                weight=release.weight,
                table_number=release.step_table_number,
                at=release.step_started_at,
            )
        self.now = evidence

    def note_deaths(self, num_replicas: int, *, at: float) -> None:
        """Note replicas of the candidate that died."""
        for _ in range(num_replicas if self.now is not None else 0):
            assert self.now is not None
            self.now.note_restart(at=at)

    def save(self, now: float) -> None:
        """Store the evidence from time to time."""
        if self.now is None or now - self._saved_at < SAVE_EVERY_S:
            return
        self._saved_at = now
        try:
            # Not in a thread: reports change it meanwhile.
            self._store.write_evidence(self.now)
        except FolderError as error:
            self._say(f"after a restart the step would be observed anew: {error}")

    async def _open(self, release: Release, state: ReleaseState) -> Evidence:
        stable, candidate = [
            await self._shelf.recall(place.version, folder=place.bundle)
            for place in (state.stable, release.candidate)
        ]
        try:
            stored = await asyncio.to_thread(self._store.read_evidence, release.release_id)
        except FolderError as error:
            self._say(f"the step is observed anew: {error}")
            stored = None
        if stored is not None:
            return stored
        return evidence_of(
            release,
            stable=state.stable.version,
            shift_tolerance=max(stable.tolerance, candidate.tolerance),
            length_edges=length_edges(stable.manifest.seq_len_percentiles),
        )

    def _say(self, line: str) -> None:
        # What goes wrong does so each second; once is enough.
        if line != self._said:
            self._said = line
            self._logger.warning(line)
