import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import record_of, validation_of
from train_samples import build_job

from pipeline.config.job import MlflowSettings
from pipeline.contract.errors import ConfigError
from pipeline.train.events import read_events
from pipeline.train.figures import FigureObserver
from pipeline.train.mlflow_log import (
    RUN_ID_NAME,
    MlflowSink,
    Row,
    connect,
    end_mlflow_run,
    flatten_settings,
    plan_mlflow,
    thin,
)


class FakeClient:
    """Takes batches, but not the first calls."""

    def __init__(self, *, failures=0):
        self._failures, self.batches, self.has_taken = failures, [], threading.Event()

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "7"

    def create_run(self, experiment_id, run_name):
        run = type("Run", (), {})()
        run.info = type("Info", (), {"run_id": f"run-of-{experiment_id}"})()
        return run

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        if self._failures:
            self._failures -= 1
            raise ConnectionError("no route to host\nsecond line")
        self.batches.append((metrics, params, tags))
        if metrics:
            self.has_taken.set()


def job_with_mlflow(folder, uri):
    return build_job(folder).model_copy(update={"mlflow": MlflowSettings(tracking_uri=uri)})


@pytest.fixture
def target(tmp_path, monkeypatch):
    for name in (
        "MLFLOW_DISABLE_TELEMETRY",
        "MLFLOW_ALLOW_FILE_STORE",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES",
        "MLFLOW_HTTP_REQUEST_TIMEOUT",
    ):
        monkeypatch.setenv(name, "1")  # Set by the code otherwise, and then for other tests too.
    return plan_mlflow(job_with_mlflow(tmp_path, str(tmp_path / "mlruns")))


def train(target, folder, steps, *, loss=0.5):
    observer = FigureObserver(folder, [MlflowSink(target, folder)])
    for step in steps:
        observer.on_step(record_of(step, loss=loss))
        if step % 4 == 0:
            observer.on_validation(validation_of(step))
    observer.close()


def test_resumed_training_goes_on_in_the_same_run_without_doubles(tmp_path, target):
    train(target, tmp_path, range(1, 8))
    killed = end_mlflow_run(target, tmp_path, "KILLED")
    train(target, tmp_path, range(5, 13), loss=0.25)

    run_id = (tmp_path / RUN_ID_NAME).read_text().strip()
    client = connect(target)
    while_running = client.get_run(run_id)
    finished = end_mlflow_run(target, tmp_path, "FINISHED")

    assert (killed, finished) == (None, None)
    assert while_running.info.status == "RUNNING"
    assert client.get_run(run_id).info.status == "FINISHED"
    assert while_running.info.run_name == "tiny"
    assert while_running.data.params["train.base_lr"] == "0.3"
    assert "mlflow.tracking_uri" not in while_running.data.params
    losses = [(m.step, m.value) for m in client.get_metric_history(run_id, "train/loss")]
    assert losses == [(step, 0.5 if step < 8 else 0.25) for step in range(1, 13)]
    measured = client.get_metric_history(run_id, "validation/accuracy")
    assert [metric.step for metric in measured] == [4, 8, 12]
    assert read_events(tmp_path) == []


def test_server_that_fails_is_told_of_once_and_gets_everything_later(tmp_path, target):
    client = FakeClient(failures=3)
    sink = MlflowSink(target, tmp_path, connect=lambda _: client, every_s=0.001)

    sink.write_figures({"loss": 0.5}, step=3)
    is_taken = client.has_taken.wait(30)
    sink.close()

    assert is_taken
    sent = [(m.key, m.value, m.step) for metrics, _, _ in client.batches for m in metrics]
    assert sent == [("train/loss", 0.5, 3)]
    (event,) = read_events(tmp_path)
    assert event.kind == "mlflow"
    assert event.message.endswith("without it: ConnectionError: no route to host")


def test_server_that_does_not_answer_is_not_waited_for(tmp_path, target):
    is_over = threading.Event()
    sink = MlflowSink(
        target, tmp_path, connect=lambda _: is_over.wait(60), every_s=0.001, close_within_s=0.05
    )

    sink.write_figures({"loss": 0.5}, step=1)
    sink.close()
    events = read_events(tmp_path)
    is_over.set()

    assert [event.kind for event in events] == ["mlflow"]
    assert "no answer" in events[0].message


def test_end_of_a_run_that_was_never_reached_is_no_problem_but_a_failing_server_is(
    tmp_path, target
):
    def refuse(_):
        raise ConnectionError("refused")

    never = end_mlflow_run(target, tmp_path, "FAILED", connect=refuse)
    (tmp_path / RUN_ID_NAME).write_text("abc\n")
    failed = end_mlflow_run(target, tmp_path, "FAILED", connect=refuse)

    assert never is None
    assert failed == "MLflow did not take that the run is over: ConnectionError: refused"


def test_missing_package_is_refused_before_training_with_the_way_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)

    with pytest.raises(
        ConfigError, match=r"mlflow\.tracking_uri.*pip install 'textlane\[mlflow\]'"
    ):
        plan_mlflow(job_with_mlflow(tmp_path, "https://mlflow.example"))


def test_job_without_mlflow_has_no_target_and_servers_stay_as_given(tmp_path):
    assert plan_mlflow(build_job(tmp_path)) is None

    assert plan_mlflow(job_with_mlflow(tmp_path, "https://m.example")).uri == "https://m.example"
    assert plan_mlflow(job_with_mlflow(tmp_path, "runs")).uri.startswith("file:///")


def test_settings_are_flat_and_long_values_cut():
    flat = flatten_settings({"a": {"b": 1, "c": {"d": None}}, "files": ["x" * 999]})

    assert flat["a.b"] == "1"
    assert flat["a.c.d"] == "None"
    assert len(flat["files"]) == 500
    assert flat["files"].endswith("x…")


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 60))
def test_thinning_keeps_order_measurements_the_last_step_and_the_limit(are_validations, most):
    rows = [
        Row(step=step, time_ms=0, figures={"validation_loss" if is_validation else "loss": 1.0})
        for step, is_validation in enumerate(are_validations)
    ]
    steps = [row for row in rows if not row.is_validation]

    kept = thin(rows, most=most)

    assert [row.step for row in kept] == sorted({row.step for row in kept})
    assert [row for row in kept if row.is_validation] == [row for row in rows if row.is_validation]
    kept_steps = [row for row in kept if not row.is_validation]
    assert len(kept_steps) == min(most, len(steps))
    assert kept_steps[-1:] == steps[-1:]
