"""A release under way, as one ingress works by it: who answers, and what is compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from serve_app.release.live_profiles import ProfileLog
from serve_app.release.report import Comparison
from serve_app.release.routing import RoutingTable
from serve_app.release.shadow import ShadowPair, ShadowRunner, ShadowTarget
from serve_app.release.split import is_candidate_key, is_shadowed
from serve_app.request_record import RequestRecord
from serve_app.request_rows import texts_of
from serve_app.schemas import PredictRequest
from serve_app.service import Prediction, PredictService


@dataclass(frozen=True, kw_only=True)
class LoadedVersion:
    """A version that this ingress can answer from."""

    service: PredictService
    shadow: ShadowTarget

    @property
    def version(self) -> str:
        """As answers carry it."""
        return self.service.version


class PairMaker(Protocol):
    """Makes of two versions' answers to one text what a report holds."""

    def __call__(
        self,
        pair: ShadowPair,
        *,
        stable: LoadedVersion,
        candidate: LoadedVersion,
        is_candidate: bool,
        text: str | None,
    ) -> Comparison | None:
        """See :func:`serve_app.release.answer_pairs.compare_answers`."""
        ...


class ReleaseSplit:
    """Splits requests between two versions by one routing table."""

    def __init__(
        self,
        table: RoutingTable,
        *,
        stable: LoadedVersion,
        candidate: LoadedVersion,
        shadows: ShadowRunner,
        profiles: ProfileLog,
        compare: PairMaker,
    ) -> None:
        """Take the table and the two versions that it names.

        Args:
            table: with a candidate.
            stable: as loaded.
            candidate: as loaded.
            shadows: runs texts on the version that did not answer them.
            profiles: counts the answered texts.
            compare: makes a comparison of a pair.
        """
        self._table = table
        self._stable, self._candidate = stable, candidate
        self._shadows = shadows
        self._profiles = profiles
        self._compare = compare

    def choose(self, record: RequestRecord) -> PredictService:
        """Return the version that answers: by the client's key, else by the request's id."""
        key = record.request_id if record.release_key is None else record.release_key
        table = self._table
        is_candidate = is_candidate_key(key, salt=table.salt, weight=table.weight)
        return (self._candidate if is_candidate else self._stable).service

    def answering(self) -> Sequence[PredictService]:
        """Return both versions."""
        return (self._stable.service, self._candidate.service)

    def after_answer(
        self, request: PredictRequest, record: RequestRecord, prediction: Prediction
    ) -> None:
        """Count what was answered, and run a share of the requests on the other version too."""
        table = self._table
        is_candidate = record.version == self._candidate.version
        own, other = self._stable, self._candidate
        if is_candidate:
            own, other = other, own
        shadow = own.shadow
        self._profiles.add(
            prediction, version=own.version, served=shadow.served, encoder=shadow.encoder
        )
        if not is_shadowed(record.request_id, salt=table.salt, share=table.shadow_share):
            return

        def compare(pair: ShadowPair) -> Comparison | None:
            text = _text_at(request, pair.place) if table.keeps_texts else None
            return self._compare(
                pair,
                stable=self._stable,
                candidate=self._candidate,
                is_candidate=is_candidate,
                text=text,
            )

        self._shadows.offer(
            request,
            prediction,
            request_id=record.request_id,
            target=other.shadow,
            texts_per_s=table.shadow_texts_per_s,
            compare=compare,
        )


def _text_at(request: PredictRequest, place: int) -> str:
    if request.texts is not None:
        return str(request.texts[place])
    return " ".join(str(text) for text in texts_of(request))
