"""The lane deployment: one model session behind a queue of texts."""

import logging
from collections.abc import Sequence
from typing import Any

from ray import serve

from pipeline.contract.errors import NotReadyError
from serve_app.batcher import Batcher, GroupRun
from serve_app.config import ServeSettings
from serve_app.lane_call import LaneAnswer, LaneRow
from serve_app.limits import LaneName
from serve_app.metrics import LaneMetrics
from serve_app.served import open_served
from serve_app.session import ScoringSession
from serve_app.window import BatchLimits

_logger = logging.getLogger(__name__)
# As many calls as a lane may hold: what is collected goes on to the batcher and never waits
# for what was collected before it.
_MAX_COLLECTED = 4096


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
        manifest, limits = served.bundle.manifest, served.limits
        self._version = served.version
        session = ScoringSession(
            served.model_path,
            pad_token_id=manifest.pad_token_id,
            num_labels=len(manifest.labels),
            num_threads=limits.threads_per_replica,
            device=settings.device,
        )
        session.warm_up(limits.warm_up(name))
        self._metrics = LaneMetrics(name)
        self._hung_after_s = settings.request_timeout_s
        self._batcher = Batcher(
            session,
            limits=BatchLimits(
                max_batch_tokens=limits.max_batch_tokens,
                max_batch_requests=limits.max_batch_requests,
                window_batches=settings.window_batches,
            ),
            on_run=self._observe,
        )
        queue: Any = self._collect  # Ray's stub hides what the decorator adds.
        queue.set_max_batch_size(limits.max_batch_requests)
        queue.set_batch_wait_timeout_s(settings.batch_wait_timeout_ms / 1000.0)
        self._waits_when_idle = settings.wait_when_idle

    async def score_rows(self, rows: list[LaneRow]) -> list[LaneAnswer]:
        """Return what became of each row, in order; cancelling this drops them.

        Calls are collected for ``batch_wait_timeout_ms`` only while a full batch waits already:
        then collecting costs no time. A lone request never waits for company.
        """
        if not self._waits_when_idle and self._batcher.batches_waiting < 1.0:
            return await self._batcher.score(rows)
        answers: list[LaneAnswer] = await self._collect(rows)
        return answers

    async def forget(self, request_ids: list[str]) -> None:
        """Drop the rows of requests that nobody waits for."""
        self._batcher.forget(request_ids)

    async def version(self) -> str:
        """Return the version that this replica serves."""
        return self._version

    async def check_health(self) -> None:
        """Let Ray Serve replace a replica whose session hangs.

        Raises:
            NotReadyError: one model run takes longer than a whole request may.
        """
        if self._batcher.running_s > self._hung_after_s:
            raise NotReadyError("the model run hangs", value=f"{self._batcher.running_s:.1f} s")

    @serve.batch(
        max_batch_size=32, batch_wait_timeout_s=0.01, max_concurrent_batches=_MAX_COLLECTED
    )
    async def _collect(self, calls: list[list[LaneRow]]) -> list[list[LaneAnswer]]:
        answers = iter(await self._batcher.score([row for rows in calls for row in rows]))
        return [[next(answers) for _ in rows] for rows in calls]

    def _observe(self, run: GroupRun) -> None:
        self._metrics.observe_group(run.lengths)
        if run.num_failed:
            _logger.error("%d texts failed of %s", run.num_failed, _shown(run.request_ids))


def _shown(request_ids: Sequence[str]) -> str:
    return ", ".join(sorted(set(request_ids)))
