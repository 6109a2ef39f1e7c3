"""What doctor says of trainings that really ran out of memory, leaked, or padded much."""

import json

import pytest
import torch
from record_samples import record_of, write_history
from test_memory_watch import watch_cpu, watch_cuda
from train_fakes import CrampedModel
from train_samples import build_micro_batch, build_tiny_model

from cluster.__main__ import main
from cluster.doctor.diagnosis import diagnose
from cluster.doctor.observations import Observations
from cluster.doctor.training_view import observe_training
from pipeline.config import TrainSettings
from pipeline.contract.errors import MissingFileError
from pipeline.train.backoff import StepRunner
from pipeline.train.events import EVENTS_NAME, EventWriter
from pipeline.train.group import SingleGroup, seed_step
from pipeline.train.history import HISTORY_NAME
from pipeline.train.step import Optimisation

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTHS = [3, 4, 5, 6, 9, 9, 9, 10]


def named(folder):
    findings = diagnose(Observations(training=observe_training(folder)))
    return {finding.symptom: finding for finding in findings}


def run_step_in_little_memory(folder, *, micro_batch):
    """Run one step whose device holds 45 padded tokens; keep what training keeps."""
    events = EventWriter(folder)
    model = CrampedModel(build_tiny_model(), capacity=45)
    state = Optimisation(model.train(), TrainSettings(), device=torch.device("cpu"))
    state.set_lr(1e-3)
    runner = StepRunner(
        state,
        group=SingleGroup(),
        micro_batch=micro_batch,
        on_out_of_memory=lambda message, _: events.write("out_of_memory", message, step=1),
        report_dir=folder,
    )
    batch = build_micro_batch(LENGTHS)
    runner.run([batch], begin=lambda: seed_step(7, step=1, rank=0), step=1)
    write_history(folder, [record_of(1, micro_batch=runner.micro_batch)])


def test_out_of_memory_is_named_and_the_micro_batch_that_it_says_cures_it(tmp_path):
    run_step_in_little_memory(tmp_path, micro_batch=8)
    finding = named(tmp_path)["training_out_of_memory"]
    rows = int(finding.cure.rpartition("train.micro_batch=")[2])
    EventWriter(tmp_path).write("resumed", "goes on at step 1", step=1)

    run_step_in_little_memory(tmp_path, micro_batch=rows)

    assert rows == 4
    assert finding.figures["micro_batch now"] == 4
    assert "out of memory" in finding.figures["event"] or "memory" in finding.figures["event"]
    assert named(tmp_path) == {}


@pytest.mark.parametrize(
    ("symptom", "sick", "cured"),
    [
        (
            "training_memory_leak",
            lambda: watch_cpu(lambda step: 800 + 0.2 * step),
            lambda: watch_cpu(lambda step: 800),
        ),
        (
            "training_fragmentation",
            lambda: watch_cuda(lambda step: 2600 + 20 * (step // 25)),
            lambda: watch_cuda(lambda step: 2600),
        ),
    ],
)
def test_memory_leak_and_fragmentation_are_named_until_a_run_without(
    tmp_path, symptom, sick, cured
):
    events = EventWriter(tmp_path)
    for step, kind, message in sick():
        events.write(kind, message, step=step)
    finding = named(tmp_path)[symptom]
    events.write("resumed", "goes on", step=5000)
    for step, kind, message in cured():
        events.write(kind, message, step=step)

    assert " MB" in finding.figures["event"]
    assert named(tmp_path) == {}


def test_training_padding_is_named_over_a_tenth_of_the_last_steps(tmp_path):
    write_history(tmp_path, [record_of(step, padding_share=0.3) for step in range(1, 31)])
    assert named(tmp_path)["training_padding"].figures == {
        "padding": pytest.approx(0.3),
        "steps": 30,
    }

    write_history(
        tmp_path,
        [record_of(step, padding_share=0.02) for step in range(31, 300)],
        after_step=30,
    )

    assert named(tmp_path) == {}


def test_spoilt_and_half_lines_are_counted_and_passed_over(tmp_path):
    write_history(tmp_path, [record_of(1)])
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(b"\x00\xff\n[]\n" + b"[" * 100_000 + b"\n" + b'{"step": 2, "micro')
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(b'batch": 3}\n{"micro_batch": Infinity, "padding_share": 0.1}\n')
        file.write(b'{"micro_batch": 8, "padding_share": NaN}\n{"step": 3')
    (tmp_path / EVENTS_NAME).write_text('{"step": "x", "kind": 1, "message": null}\nnull\n\n')

    seen = observe_training(tmp_path)

    assert (seen.steps, seen.micro_batch, seen.events) == (1, 32, ())
    assert seen.spoilt_lines == 9


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_a_folder_without_a_training_is_refused(tmp_path, name, capsys):
    (tmp_path / "empty").mkdir()

    with pytest.raises(MissingFileError, match="no checkpoint folder"):
        observe_training(tmp_path / name)

    assert main(["doctor", "--checkpoint", str(tmp_path / name)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_command_tells_findings_of_a_training_as_json(tmp_path, capsys):
    run_step_in_little_memory(tmp_path, micro_batch=8)

    assert main(["doctor", "--checkpoint", str(tmp_path), "--json"]) == 1

    content = json.loads(capsys.readouterr().out)
    assert [finding["symptom"] for finding in content["findings"]] == ["training_out_of_memory"]
    assert content["observations"]["training"]["micro_batch"] == 4
    assert content["observations"]["serving"] is None
