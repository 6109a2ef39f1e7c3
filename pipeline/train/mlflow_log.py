"""Enters a training's figures into MLflow, beside the training and never in its way."""

import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pipeline.config import JobConfig
from pipeline.contract.errors import ConfigError
from pipeline.contract.folder import write_text_atomically
from pipeline.train.events import Event, EventWriter
from pipeline.train.figures import FIGURES

RUN_ID_NAME = "mlflow_run.txt"
RunStatus = Literal["FINISHED", "FAILED", "KILLED"]
Connect = Callable[["MlflowTarget"], Any]

_TAGS = {figure.name: figure.tag for figure in FIGURES}
_LAST_STEP = "textlane.last_step"
_LAST_EVENT = "textlane.last_event"
_SEND_EVERY_S = 5.0
_CLOSE_WITHIN_S = 15.0
_MAX_STEPS = 60
"""Steps in one call; when there are more in it, they are thinned out."""
_MAX_METRICS, _MAX_PARAMS = 1000, 100
"""MLflow's limits for one call."""
_MAX_PARAM_CHARACTERS = 500
"""Old servers take no more; new ones take 6000."""
_DEFAULTS = {
    # Left alone, MLflow tells its makers how it is used.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # It refuses folders unless told otherwise; the job names one on purpose.
    "MLFLOW_ALLOW_FILE_STORE": "true",
    # Its own patience is minutes for each call; here what could not be sent is sent later.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


@dataclass(frozen=True, kw_only=True)
class MlflowTarget:
    """Where a training is entered; it can be pickled."""

    uri: str
    experiment: str
    run_name: str
    params: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one step, or a measurement after it, gave."""

    step: int
    time_ms: int
    figures: Mapping[str, float]

    @property
    def is_validation(self) -> bool:
        """Whether it holds a measurement, which is rare and never thinned out."""
        return "validation_loss" in self.figures


def plan_mlflow(job: JobConfig) -> MlflowTarget | None:
    """Return where the job's training is to be entered, None for nowhere.

    Raises:
        ConfigError: MLflow is wanted but not installed.
    """
    uri = job.mlflow.tracking_uri
    if uri is None:
        return None
    if find_spec("mlflow") is None:
        raise ConfigError(
            "MLflow is not installed",
            place="mlflow.tracking_uri",
            value=uri,
            remedy="Run `pip install 'textlane[mlflow]'` or take mlflow.tracking_uri out.",
        )
    # The workers have other working directories.
    return MlflowTarget(
        uri=uri if "://" in uri else Path(uri).resolve().as_uri(),
        experiment=job.mlflow.experiment,
        run_name=job.name,
        params=flatten_settings(job.model_dump(mode="json", exclude={"mlflow"})),
    )


def flatten_settings(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return settings by dotted names, long values cut; ``{"a": {"b": 1}}`` -> ``{"a.b": "1"}``."""
    flat: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten_settings(value, f"{prefix}{name}."))
            continue
        shown = str(value)
        is_long = len(shown) > _MAX_PARAM_CHARACTERS
        flat[f"{prefix}{name}"] = f"{shown[: _MAX_PARAM_CHARACTERS - 1]}…" if is_long else shown
    return flat


def thin(rows: Sequence[Row], *, most: int) -> list[Row]:
    """Return at most so many steps, evenly spread and with the last, and all measurements."""
    steps = [row for row in rows if not row.is_validation]
    if len(steps) <= most:
        return list(rows)
    kept = {id(steps[(index + 1) * len(steps) // most - 1]) for index in range(most)}
    return [row for row in rows if row.is_validation or id(row) in kept]


def load_mlflow() -> None:
    """Import MLflow: some 2 s and 40 MB, which between steps would look like a leak."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    importlib.import_module("mlflow.tracking")


def connect(target: MlflowTarget) -> Any:
    """Return MLflow's client; nothing is sent yet."""
    load_mlflow()
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=target.uri)


def end_mlflow_run(
    target: MlflowTarget, checkpoint_dir: Path, status: RunStatus, *, connect: Connect = connect
) -> str | None:
    """Mark the run as over; return what went wrong, None if nothing did."""
    try:
        run_id = (checkpoint_dir / RUN_ID_NAME).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None  # It was never reached, and an event has told so.
    try:
        connect(target).set_terminated(run_id, status)
    except Exception as error:  # MLflow and its stores raise whatever they like.
        return f"MLflow did not take that the run is over: {_first_line(error)}"
    return None


class MlflowSink:
    """Sends figures from a thread of its own; what cannot be sent waits and is thinned.

    A resumed training goes on in the same run. It repeats the steps after its checkpoint with
    the same figures, so those that the run already has are not sent again.
    """

    def __init__(
        self,
        target: MlflowTarget,
        checkpoint_dir: Path,
        *,
        connect: Connect = connect,
        every_s: float = _SEND_EVERY_S,
        close_within_s: float = _CLOSE_WITHIN_S,
    ) -> None:
        """Import MLflow and start the thread, which opens the run with its first call."""
        load_mlflow()
        self._target, self._folder = target, checkpoint_dir
        self._connect = connect
        self._every_s, self._close_within_s = every_s, close_within_s
        self._client: Any = None
        self._run_id, self._sent_step = "", 0
        self._rows: list[Row] = []
        self._step = 0
        self._last_event: str | None = None
        self._has_warned = False
        self._lock, self._is_closing = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._send_often, name="mlflow", daemon=True)
        self._thread.start()

    def write_figures(self, figures: Mapping[str, float], *, step: int) -> None:
        """Keep the figures for the next call."""
        row = Row(step=step, time_ms=int(time.time() * 1000), figures=dict(figures))
        with self._lock:
            self._rows.append(row)
            self._step = step
            if len(self._rows) >= 100 * _MAX_STEPS:
                self._rows = thin(self._rows, most=_MAX_STEPS)

    def write_event(self, event: Event) -> None:
        """Keep the event: the run's tag shows the last one."""
        with self._lock:
            self._last_event = f"step {event.step}: {event.message}"

    def close(self) -> None:
        """Send what waits; an MLflow that does not answer is not waited for."""
        self._is_closing.set()
        self._thread.join(self._close_within_s)
        if self._thread.is_alive():
            self._warn(f"no answer within {self._close_within_s:.0f} s of the end")

    def _send_often(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_closing.wait(self._every_s)
            with self._lock:
                rows, self._rows = self._rows, []
                last_event, self._last_event = self._last_event, None
            rows = thin(rows, most=_MAX_STEPS)
            try:
                if self._client is None:
                    self._open()
                self._send([row for row in rows if row.step > self._sent_step], last_event)
            except Exception as error:  # MLflow and its stores raise whatever they like.
                self._warn(_first_line(error))
                with self._lock:
                    self._rows = rows + self._rows
                    self._last_event = self._last_event or last_event

    def _open(self) -> None:
        client, path = self._connect(self._target), self._folder / RUN_ID_NAME
        if path.exists():
            self._run_id = path.read_text(encoding="utf-8").strip()
            tags = client.get_run(self._run_id).data.tags
            self._sent_step = int(tags.get(_LAST_STEP, 0))
            client.update_run(self._run_id, status="RUNNING")
        else:
            if not self._run_id:  # A try before this one may have come as far.
                self._run_id = self._create_run(client)
            self._send_params(client)
            write_text_atomically(path, f"{self._run_id}\n")
        self._client = client

    def _create_run(self, client: Any) -> str:
        name = self._target.experiment
        found = client.get_experiment_by_name(name)
        experiment_id = found.experiment_id if found else client.create_experiment(name)
        return str(client.create_run(experiment_id, run_name=self._target.run_name).info.run_id)

    def _send_params(self, client: Any) -> None:
        from mlflow.entities import Param

        params = [Param(name, value) for name, value in self._target.params.items()]
        for start in range(0, len(params), _MAX_PARAMS):
            client.log_batch(self._run_id, params=params[start : start + _MAX_PARAMS])

    def _send(self, rows: Sequence[Row], last_event: str | None) -> None:
        from mlflow.entities import Metric, RunTag

        metrics = [
            Metric(_TAGS[name], value, row.time_ms, row.step)
            for row in rows
            for name, value in row.figures.items()
        ]
        for start in range(0, len(metrics), _MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + _MAX_METRICS])
        tags = [RunTag(_LAST_STEP, str(rows[-1].step))] if rows else []
        if last_event is not None:
            tags.append(RunTag(_LAST_EVENT, last_event))
        if tags:
            self._client.log_batch(self._run_id, tags=tags)

    def _warn(self, reason: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        EventWriter(self._folder).write(
            "mlflow",
            f"MLflow does not take the figures, training goes on without it: {reason}",
            step=self._step,
        )


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
