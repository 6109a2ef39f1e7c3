"""The Ray rim: runs the plain loop in a group of Ray workers and starts lost ones again.

Ray's own checkpoints are not used. The checkpoint folder lies on storage that every worker
reaches (a shared file system on a cluster), and a restarted group finds its place there by
itself; Ray is only told the figures.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pipeline.config import RaySettings
from pipeline.contract.errors import TextlaneError, TrainingError
from pipeline.ray_session import ray_session
from pipeline.train.figures import FigureObserver, FigureSink
from pipeline.train.group import DistributedGroup, Group, SingleGroup
from pipeline.train.history import StepRecord
from pipeline.train.loop import FINAL_ERRORS, run_training
from pipeline.train.mlflow_log import (
    MlflowSink,
    MlflowTarget,
    RunStatus,
    end_mlflow_run,
    plan_mlflow,
)
from pipeline.train.notice import NoticePoll
from pipeline.train.observers import Observer
from pipeline.train.progress import show_progress
from pipeline.train.training_run import TrainingRun

_WATCHER = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
_RESIZE_EVERY_S = 60.0
"""How often a training with a range of workers looks whether the cluster has grown. Each
change costs a new start of the group, some 10 s."""


def fit_on_ray(run: TrainingRun) -> None:
    """Train with the job's workers; progress goes to stderr. Returns when all is done.

    Raises:
        ConfigError: MLflow is wanted but not installed, or the model by import path cannot be
            built where the workers are.
        WeightsError: the pretrained weights that the workers see do not fit.
        TrainingError: the cluster is too small, a loss was not finite, or workers were lost
            more than ``ray.max_failures`` times.
    """
    mlflow = plan_mlflow(run.job)
    with (
        _mlflow_run_ends(mlflow, run.checkpoint_dir),
        _ray_train_settings(run.job.ray),
        ray_session(run.job.ray),
    ):
        _demand_resources(run.job.ray)
        storage = Path(tempfile.mkdtemp(dir=run.checkpoint_dir.parent, prefix=".ray-train-"))
        try:
            _fit_beside_progress(run, storage, mlflow)
        finally:
            shutil.rmtree(storage, ignore_errors=True)


@contextmanager
def _ray_train_settings(settings: RaySettings) -> Iterator[None]:
    is_joined = bool(settings.address or os.environ.get("RAY_ADDRESS"))
    wanted = {
        # Ray looks at its workers every 2 s by default: up to that long lost at start and end.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # It is one process more to start, and nobody announces that this machine goes.
        _WATCHER: "1" if is_joined else "0",
        # For the dashboard's Train page, which a cluster of our own has not.
        "RAY_TRAIN_ENABLE_STATE_TRACKING": "1" if is_joined else "0",
    }
    own = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


@contextmanager
def _mlflow_run_ends(target: MlflowTarget | None, checkpoint_dir: Path) -> Iterator[None]:
    # Only here is known how it ended; the workers may have been killed, and more than once.
    status: RunStatus = "KILLED"
    try:
        yield
        status = "FINISHED"
    except Exception:
        status = "FAILED"
        raise
    finally:
        if target and (problem := end_mlflow_run(target, checkpoint_dir, status)):
            Console(stderr=True, soft_wrap=True).print(problem, markup=False, highlight=False)


def _fit_beside_progress(run: TrainingRun, storage: Path, mlflow: MlflowTarget | None) -> None:
    # The bar has the other thread: one that still asked Ray something while this one, told to
    # stop, shut Ray down would end the process on the spot, with nothing cleaned up.
    is_over = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="progress") as pool:
        show = partial(show_progress, total_steps=run.total_steps, is_over=is_over)
        shown = pool.submit(show, run.checkpoint_dir)
        try:
            error = _fit(run, storage, mlflow)
        except FINAL_ERRORS:
            raise
        except Exception as failure:
            raise TrainingError(
                f"the workers failed: {failure}",
                place=str(run.checkpoint_dir),
                remedy="Run the same command again; it goes on from the last checkpoint.",
            ) from failure
        finally:
            is_over.set()
    shown.result()
    if error is not None:
        raise error


def _fit(run: TrainingRun, storage: Path, mlflow: MlflowTarget | None) -> TextlaneError | None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from pipeline.train.resize_notice import SaveBeforeResize

    class Trainer(TorchTrainer):
        """Leaves Ctrl-C to the command, where Ray would take it over and not give it back."""

        def _register_sigint_handler(self, controller: Any) -> None:
            """Register none."""

    settings = run.job.ray
    loop: Any = _train_loop_per_worker  # Ray types it to return nothing; it may.
    least, most = settings.worker_range
    mark = storage / "resize"
    callbacks: list[Any] = [SaveBeforeResize(mark)] if least < most else []
    scaling: dict[str, Any] = {  # Ray's stubs know only whole numbers of workers.
        "num_workers": least if least == most else (least, most),
        "use_gpu": settings.use_gpu,
        "elastic_resize_monitor_interval_s": _RESIZE_EVERY_S,
    }
    trainer = Trainer(
        loop,
        train_loop_config={
            "run": run,
            "mlflow": mlflow,
            "is_watched": os.environ[_WATCHER].lower() in {"1", "true"},
            "resize_mark": mark,
        },
        scaling_config=ScalingConfig(**scaling),
        run_config=RunConfig(
            name=run.job.name,
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=settings.max_failures),
            callbacks=callbacks,
        ),
    )
    result: Any = trainer.fit()
    error: TextlaneError | None = result.return_value
    return error


def _train_loop_per_worker(config: dict[str, Any]) -> TextlaneError | None:
    import ray.train
    import ray.train.torch

    run: TrainingRun = config["run"]
    context = ray.train.get_context()
    group: Group = SingleGroup() if context.get_world_size() == 1 else DistributedGroup()

    device = ray.train.torch.get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)  # all_gather_object sends through the current device.

    poll = _build_poll(config, group=group)

    def report(record: StepRecord) -> None:
        if poll and poll.has_told and group.rank == 0:
            # Rank 0 has written it; whoever waits for that before a resize may go on.
            config["resize_mark"].unlink(missing_ok=True)
        ray.train.report(asdict(record))

    try:
        run_training(
            run,
            group=group,
            device=device,
            num_threads=_num_threads(run.job.ray, context.get_local_world_size()),
            on_checkpoint=report,
            poll_notice=poll,
            observers=_build_observers(run, config["mlflow"]) if group.rank == 0 else (),
        )
    except FINAL_ERRORS as error:
        # Ray must not retry it. Raised, it would end rank 0 while that still writes a checkpoint.
        return error
    return None


def _build_poll(config: dict[str, Any], *, group: Group) -> NoticePoll | None:
    least, most = config["run"].job.ray.worker_range
    if config["is_watched"]:
        return NoticePoll(group=group, ask=_ask_ray, is_resize_due=config["resize_mark"].exists)
    if least < most:
        return NoticePoll(group=group, is_resize_due=config["resize_mark"].exists)
    return None


def _ask_ray() -> str | None:
    import ray.train

    info = ray.train.get_preemption_info()  # Waits for all ranks and gives all the same.
    if info is None:
        return None
    nodes = ", ".join(node[:8] for node in info.preempted_node_ids)
    if not info.deadline_ms:
        return f"the cluster takes node {nodes} away"
    deadline = datetime.fromtimestamp(info.deadline_ms / 1000)
    return f"the cluster takes node {nodes} away at {deadline:%H:%M:%S}"


def _build_observers(run: TrainingRun, mlflow: MlflowTarget | None) -> list[Observer]:
    from pipeline.train.ray_metrics import RayMetricsSink
    from pipeline.train.tensorboard import TensorBoardSink

    sinks: list[FigureSink] = [RayMetricsSink(run.job.name)]
    if run.job.train.tensorboard:
        sinks.append(TensorBoardSink(run.checkpoint_dir))
    if mlflow:
        sinks.append(MlflowSink(mlflow, run.checkpoint_dir))
    return [FigureObserver(run.checkpoint_dir, sinks)]


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
