"""Which version answers a request of one ingress process; no Ray, no HTTP."""

from collections.abc import Sequence
from typing import Protocol

from pipeline.contract.errors import NotReadyError
from serve_app.request_record import RequestRecord
from serve_app.schemas import PredictRequest
from serve_app.service import Prediction, PredictService

NO_TABLE = "the release desk has not said yet which version answers"


class Split(Protocol):
    """Decides while a release is under way, request by request."""

    def choose(self, record: RequestRecord) -> PredictService:
        """Return the version that answers.

        Raises:
            NotReadyError: it is not known yet.
        """
        ...

    def after_answer(
        self, request: PredictRequest, record: RequestRecord, prediction: Prediction
    ) -> None:
        """Take note of an answer that is on its way to its user."""
        ...

    def answering(self) -> Sequence[PredictService]:
        """Return the versions that users may be answered by."""
        ...


class Versions:
    """The stable version and, while a release is under way, how requests are split.

    Both attributes are replaced when the routing table changes, between two requests; a
    request goes on with the version that it began with.
    """

    def __init__(self, stable: PredictService, *, split: Split | None = None) -> None:
        """Begin with a version; all requests are its own unless ``split`` says otherwise."""
        self.stable = stable
        self.split = split

    def stable_version(self) -> str:
        """Return the version that answers where no release is under way."""
        return self.stable.version

    def answering(self) -> Sequence[PredictService]:
        """Return the versions that users may be answered by."""
        return (self.stable,) if self.split is None else self.split.answering()

    async def check(self) -> None:
        """Return when requests can be answered.

        Raises:
            NotReadyError: it is not known yet by which version, or its lanes do not answer.
        """
        if isinstance(self.split, Untold):
            raise NotReadyError(NO_TABLE)
        await self.stable.check()


class Untold:
    """Stands for the split until the first routing table is there: nobody is answered.

    To answer by the stable version meanwhile would be a guess, and wrong where a release has
    promoted another one.
    """

    def choose(self, record: RequestRecord) -> PredictService:
        """Refuse the request.

        Raises:
            NotReadyError: always.
        """
        raise NotReadyError(NO_TABLE, remedy="Send the request again later.")

    def after_answer(
        self, request: PredictRequest, record: RequestRecord, prediction: Prediction
    ) -> None:
        """Do nothing: there are no answers."""

    def answering(self) -> Sequence[PredictService]:
        """Return none."""
        return ()
