"""The lane deployment: one model session behind a queue of texts."""

import logging
from typing import Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from pipeline.contract.errors import ConfigError, NotReadyError
from serve_app.batcher import Batcher, GroupRun
from serve_app.config import ServeSettings
from serve_app.gpu_meter import open_gpu_meter
from serve_app.lane_call import LaneAnswer, LaneRow, RowKey
from serve_app.limits import LaneName, ServingLimits, resolve_limits
from serve_app.live_settings import LANE_LIVE, with_live_values
from serve_app.load_watch import BusyShare, LoadWatch
from serve_app.metrics import LaneMetrics, SettingMetrics
from serve_app.scaling import BUSY_SHARE, QUEUED_BATCHES
from serve_app.served import open_served
from serve_app.session import ScoringSession
from serve_app.told_settings import lane_settings
from serve_app.window import BatchLimits

_logger = logging.getLogger(__name__)
# What is logged here stands in the replica's own file, which Ray's dashboard shows.
_replica_logger = logging.getLogger("ray.serve")
# As many calls as a lane may hold: what is collected goes on to the batcher and never waits
# for what was collected before it.
_MAX_COLLECTED = 4096


class Lane:
    """One replica: a model session behind a batch queue."""

    def __init__(
        self,
        settings: ServeSettings,
        *,
        name: LaneName,
        version: str,
        beside: DeploymentHandle[Any] | None = None,
    ) -> None:
        """Load and warm up the model.

        Args:
            settings: with an absolute bundle path.
            name: which texts this lane gets.
            version: the version that the application was built with.
            beside: the other lane where there is no ingress to bind both; Ray Serve makes one
                application of what is bound, and nothing else is done with it.

        Raises:
            FolderError: (or a subtype) the bundle is not the one or not usable.
        """
        served = open_served(settings, expected_version=version)
        manifest, limits = served.bundle.manifest, served.limits
        self._settings, self._bundle, self._version = settings, served.bundle, served.version
        self._is_configured = False
        session = ScoringSession(
            served.model_path,
            pad_token_id=manifest.pad_token_id,
            num_labels=len(manifest.labels),
            num_threads=limits.threads_per_replica,
            device=settings.device,
        )
        session.warm_up(limits.warm_up(name))
        self._metrics = LaneMetrics(name, version=served.version)
        self._setting_metrics = SettingMetrics(name, version=served.version)
        self._told_settings = lane_settings(settings, limits)
        self._hung_after_s = settings.request_timeout_s
        self._batcher = Batcher(
            session,
            limits=_batch_limits(settings, limits),
            on_run=self._observe,
            concurrent_runs=settings.concurrent_runs(name),
        )
        self._waits_when_idle = False
        gpu = open_gpu_meter(ray.get_gpu_ids())
        self._watch = LoadWatch(
            self._batcher,
            report=self._metrics.observe_load,
            read_gpu=None if gpu is None else gpu.read_utilisation,
        )
        self._busy_share = BusyShare()

    async def reconfigure(self, user_config: object) -> None:
        """Take other limits, without restart and with what waits; see ``LANE_LIVE``.

        Ray Serve calls this once before the first request and whenever ``user_config`` of the
        deployment changes. What cannot be is refused with the replica at its start; later it is
        logged and the old limits stay, as Ray would stop the replica for it.

        Raises:
            ConfigError: names the value and the remedy; only the first time.
        """
        try:
            settings = with_live_values(self._settings, user_config, names=LANE_LIVE)
            limits = resolve_limits(settings, self._bundle)
        except ConfigError as error:
            if not self._is_configured:
                raise
            _replica_logger.error("the limits stay as they are: %s", error)
            return
        self._is_configured = True
        self._watch.wake()
        self._batcher.limits = _batch_limits(settings, limits)
        self._told_settings = lane_settings(settings, limits)
        queue: Any = self._collect  # Ray's stub hides what the decorator adds.
        queue.set_max_batch_size(limits.max_batch_requests)
        queue.set_batch_wait_timeout_s(settings.batch_wait_timeout_ms / 1000.0)
        self._waits_when_idle = settings.wait_when_idle

    async def score_rows(self, rows: list[LaneRow]) -> list[LaneAnswer]:
        """Return what became of each row, in order; cancelling this drops them.

        Calls are collected for ``batch_wait_timeout_ms`` only while a full batch waits already:
        then collecting costs no time. A lone request never waits for company. Shadows come in
        calls of their own, which are not collected with users': those would wait for them.
        """
        self._watch.wake()
        if rows and rows[0].is_shadow:
            return await self._batcher.score(rows)
        if not self._waits_when_idle and self._batcher.batches_waiting < 1.0:
            return await self._batcher.score(rows)
        answers: list[LaneAnswer] = await self._collect(rows)
        return answers

    async def forget(self, rows: list[RowKey]) -> None:
        """Drop the rows of requests that nobody waits for."""
        self._batcher.forget(rows)

    async def version(self) -> str:
        """Return the version that this replica serves."""
        return self._version

    async def settings(self) -> ServeSettings:
        """Return what this replica was built with, so that an ingress cuts texts alike."""
        return self._settings

    async def check_health(self) -> None:
        """Let Ray Serve replace a replica whose session hangs; tells the settings as well.

        Raises:
            NotReadyError: one model run takes longer than a whole request may.
        """
        self._setting_metrics.tell(self._told_settings)
        if self._batcher.running_s > self._hung_after_s:
            raise NotReadyError("the model run hangs", value=f"{self._batcher.running_s:.1f} s")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what decides on the number of replicas; Ray Serve asks where it is to scale."""
        load = self._batcher.read_load()
        return {
            QUEUED_BATCHES: load.num_batches,
            BUSY_SHARE: self._busy_share.read(load.busy_s),
        }

    @serve.batch(
        max_batch_size=32, batch_wait_timeout_s=0.01, max_concurrent_batches=_MAX_COLLECTED
    )
    async def _collect(self, calls: list[list[LaneRow]]) -> list[list[LaneAnswer]]:
        self._watch.wake()  # While they were collected it may have seen an idle lane.
        answers = iter(await self._batcher.score([row for rows in calls for row in rows]))
        return [[next(answers) for _ in rows] for rows in calls]

    def _observe(self, run: GroupRun) -> None:
        self._metrics.observe_group(run.lengths)
        for failure in dict.fromkeys(run.failures):
            # Which of the batch's requests, their own lines say.
            ids = sorted(set(run.request_ids))
            _logger.error("a text of requests %s could not be scored", ids, exc_info=failure)


def _batch_limits(settings: ServeSettings, limits: ServingLimits) -> BatchLimits:
    return BatchLimits(
        max_batch_tokens=limits.max_batch_tokens,
        max_batch_requests=limits.max_batch_requests,
        window_batches=settings.window_batches,
        run_cost_tokens=settings.run_cost_tokens,
    )
