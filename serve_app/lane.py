"""The lane deployment: collect texts, sort them by length, run, answer in request order."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from pipeline.contract.errors import InferenceError, NotReadyError, OverloadedError
from serve_app.config import ServeSettings
from serve_app.limits import LaneName
from serve_app.metrics import LaneMetrics
from serve_app.served import open_served
from serve_app.session import Logits, Row, ScoringSession, score_rows

_logger = logging.getLogger(__name__)


class Lane:
    """One replica: a model session behind a batch queue."""

    def __init__(self, settings: ServeSettings, *, name: LaneName, version: str) -> None:
        """Load and warm up the model.

        Args:
            settings: with an absolute bundle path.
            name: which texts this lane gets.
            version: the version that the application was built with.

        Raises:
            FolderError: (or a subtype) the bundle is not the one or not usable.
        """
        served = open_served(settings, expected_version=version)
        manifest, self._limits = served.bundle.manifest, served.limits
        self._version = served.version
        self._session = ScoringSession(
            served.model_path,
            pad_token_id=manifest.pad_token_id,
            num_labels=len(manifest.labels),
            num_threads=self._limits.threads_per_replica,
            device=settings.device,
        )
        self._session.warm_up(self._limits.warm_up(name))
        self._metrics = LaneMetrics(name)
        # One thread: the session uses its own threads, and the event loop stays free.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="session")
        queue: Any = self._score_batch  # Ray's stub hides what the decorator adds.
        queue.set_max_batch_size(self._limits.max_batch_requests)
        queue.set_batch_wait_timeout_s(settings.batch_wait_timeout_ms / 1000.0)

    async def score(self, input_ids: NDArray[np.int32]) -> Logits | InferenceError:
        """Return a row's logits, or why the model gave none.

        ``float32 [num_labels]``, or ``[seq, num_labels]`` for the token task.
        """
        outcome: Logits | InferenceError = await self._score_batch(input_ids)
        return outcome

    async def version(self) -> str:
        """Return the version that this replica serves."""
        return self._version

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.01)
    async def _score_batch(self, rows: list[Row]) -> list[Logits | InferenceError]:
        run = partial(
            score_rows,
            self._session,
            rows,
            max_batch_tokens=self._limits.max_batch_tokens,
            max_batch_requests=self._limits.max_batch_requests,
            on_group=self._metrics.observe_group,
        )
        outcomes = await asyncio.get_running_loop().run_in_executor(self._executor, run)
        for outcome in outcomes:
            if isinstance(outcome, InferenceError):
                _logger.error("a text could not be scored", exc_info=outcome)
        return outcomes


class RemoteLane:
    """A lane as the ingress sees it: Ray's failures become errors of ours."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        """Take the handle of a lane deployment."""
        self._handle = handle

    async def score(self, input_ids: NDArray[np.int32]) -> Logits | InferenceError:
        """Return :meth:`Lane.score` of a replica; cancelling this cancels the work there.

        Raises:
            OverloadedError: Ray Serve refused the call, its queue is full.
            NotReadyError: the replica was lost.
        """
        response: Any = self._handle.score.remote(input_ids)
        try:
            outcome: Logits | InferenceError = await response
            return outcome
        except asyncio.CancelledError:
            response.cancel()
            raise
        except BackPressureError as error:
            raise OverloadedError("the lane's queue is full") from error
        except RayError as error:
            raise NotReadyError(
                "a model replica was lost while it worked", remedy="Send the request again."
            ) from error

    async def version(self) -> str:
        """Return the version that a replica serves.

        Raises:
            NotReadyError: the replica was lost.
        """
        try:
            return str(await self._handle.version.remote())
        except RayError as error:
            raise NotReadyError("a model replica was lost") from error
