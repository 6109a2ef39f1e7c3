"""The Ray rim: runs the plain loop in a group of Ray workers and starts lost ones again.

Ray's own checkpoints are not used. The checkpoint folder lies on storage that every worker
reaches (a shared file system on a cluster), and a restarted group finds its place there by
itself; Ray is only told the figures.
"""

import os
import shutil
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pipeline.config import RaySettings
from pipeline.contract.errors import TrainingError
from pipeline.ray_session import ray_session
from pipeline.train.group import DistributedGroup, Group, SingleGroup
from pipeline.train.history import StepRecord
from pipeline.train.loop import run_training
from pipeline.train.progress import show_progress
from pipeline.train.training_run import TrainingRun

_RAY_TRAIN_DEFAULTS = {
    # Ray looks at its workers every 2 s by default: up to that long lost at start and end.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    # One process less to start; the loop does nothing with a warning before a machine goes.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


def fit_on_ray(run: TrainingRun) -> None:
    """Train with the job's workers; progress goes to stderr. Returns when all is done.

    Raises:
        TrainingError: the cluster is too small, a loss was not finite, or workers were lost
            more than ``ray.max_failures`` times.
    """
    for name, value in _RAY_TRAIN_DEFAULTS.items():
        os.environ.setdefault(name, value)
    with ray_session(run.job.ray):
        _demand_resources(run.job.ray)
        storage = Path(tempfile.mkdtemp(dir=run.checkpoint_dir.parent, prefix=".ray-train-"))
        try:
            _fit_beside_progress(run, storage)
        finally:
            shutil.rmtree(storage, ignore_errors=True)


def _fit_beside_progress(run: TrainingRun, storage: Path) -> None:
    # fit() runs in a thread: in the main one it would take over Ctrl-C and not give it back.
    outcome: dict[str, Any] = {}
    is_over = threading.Event()

    def fit() -> None:
        try:
            outcome["error"] = _fit(run, storage)
        except Exception as error:  # handed to the caller's thread below, never dropped
            outcome["error"] = error
        finally:
            is_over.set()

    thread = threading.Thread(target=fit, name="ray-train-fit", daemon=True)
    thread.start()
    show_progress(run.checkpoint_dir, total_steps=run.total_steps, is_over=is_over)
    thread.join()
    error = outcome["error"]
    if isinstance(error, TrainingError):
        raise error
    if error is not None:
        raise TrainingError(
            f"the workers failed: {error}",
            place=str(run.checkpoint_dir),
            remedy="Run the same command again; it goes on from the last checkpoint.",
        ) from error


def _fit(run: TrainingRun, storage: Path) -> TrainingError | None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    settings = run.job.ray
    loop: Any = _train_loop_per_worker  # Ray types it to return nothing; it may.
    trainer = TorchTrainer(
        loop,
        train_loop_config={"run": run},
        scaling_config=ScalingConfig(num_workers=_num_workers(settings), use_gpu=settings.use_gpu),
        run_config=RunConfig(
            name=run.job.name,
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=settings.max_failures),
        ),
    )
    result: Any = trainer.fit()
    error: TrainingError | None = result.return_value
    return error


def _train_loop_per_worker(config: dict[str, Any]) -> TrainingError | None:
    import ray.train
    import ray.train.torch

    run: TrainingRun = config["run"]
    context = ray.train.get_context()
    group: Group = SingleGroup() if context.get_world_size() == 1 else DistributedGroup()

    device = ray.train.torch.get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)  # all_gather_object sends through the current device.

    def report(record: StepRecord) -> None:
        ray.train.report(asdict(record))

    try:
        run_training(
            run,
            group=group,
            device=device,
            num_threads=_num_threads(run.job.ray, context.get_local_world_size()),
            on_checkpoint=report,
        )
    except TrainingError as error:
        # Every rank raises it at the same step, and would again: Ray must not retry it.
        return error
    return None


def _num_workers(settings: RaySettings) -> Any:
    least, most = settings.worker_range
    return least if least == most else (least, most)  # Ray's stubs know only whole numbers.


def _num_threads(settings: RaySettings, workers_here: int) -> int:
    return settings.threads_per_worker or max(1, len(os.sched_getaffinity(0)) // workers_here)


def _demand_resources(settings: RaySettings) -> None:
    import ray

    kind = "GPU" if settings.use_gpu else "CPU"
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray's
    there = int(resources.get(kind, 0))
    least = settings.worker_range[0]
    if there < least:
        raise TrainingError(
            f"the cluster has {there} {kind} for ray.num_workers {least}",
            remedy="Lower ray.num_workers, or join a larger cluster with ray.address.",
        )
    if settings.use_gpu and not torch.version.cuda:
        raise TrainingError(
            "ray.use_gpu is true, but this torch was built without CUDA",
            value=torch.__version__,
            remedy="Install a CUDA build of torch or set ray.use_gpu to false.",
        )
