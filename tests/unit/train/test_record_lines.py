"""Logs of a training that a kill, a power cut or a hand has spoilt are read all the same."""

import json
from dataclasses import asdict

import pytest
from record_samples import record_of, validation_of, write_history
from train_runs import run_until, run_with, timeless
from train_samples import build_job, prepare_run

from pipeline.train.events import EVENTS_NAME, Event, EventWriter, read_events
from pipeline.train.figures import count_skipped
from pipeline.train.history import (
    HISTORY_NAME,
    VALIDATION_NAME,
    StepRecord,
    read_history,
    read_latest_records,
    read_validations,
)
from pipeline.train.record_lines import read_lines

GOOD = json.dumps(asdict(record_of(1))).encode()
GARBAGE = b'\x00\xff\xfe\n{"step": 2, "epo{"step": 2}\n[1, 2]\n\n' + b"[" * 100_000 + b"\n"


def line_of(**changes):
    return json.dumps({**asdict(record_of(1)), **changes}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        GOOD[:-1],
        b"[]",
        b"null",
        b"\xff" + GOOD,
        b'{"step": 1}',
        line_of(loss="0.5"),
        line_of(loss=float("nan")),
        line_of(seconds=float("inf")),
        line_of(step=1.5),
        line_of(skipped=0),
        line_of(step=None),
    ],
)
def test_line_that_is_no_record_is_passed_over_and_counted(line):
    read = read_lines([GOOD, line, GOOD], StepRecord)

    assert read.records == [record_of(1)] * 2
    assert read.num_bad == 1


def test_field_of_a_later_version_spoils_no_line_and_a_whole_number_is_a_number():
    read = read_lines([line_of(loss=1, later="field")], StepRecord)

    assert read.records == [record_of(1, loss=1.0)]
    assert read.num_bad == 0


def spoil(path):
    """Put garbage after the file's first line."""
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(first + b"\n" + GARBAGE + rest)


def test_every_reader_passes_over_garbage_in_the_middle(tmp_path):
    records = [record_of(step, skipped=step == 2) for step in (1, 2, 3)]
    write_history(tmp_path, [*records, validation_of(1), validation_of(3)])
    writer = EventWriter(tmp_path, clock=lambda: 0.0)
    events = [writer.write("skipped", "one\u2028two", step=step) for step in (1, 2)]
    for name in (HISTORY_NAME, VALIDATION_NAME, EVENTS_NAME):
        spoil(tmp_path / name)
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(b'{"st\xff "skipped": true}\n')

    assert read_history(tmp_path) == records
    assert read_latest_records(tmp_path) == records[1:]  # The rest is too far from the end.
    assert read_validations(tmp_path) == [validation_of(1), validation_of(3)]
    assert read_events(tmp_path) == events
    assert isinstance(events[0], Event)
    assert count_skipped(tmp_path) == 1


@pytest.mark.slow
def test_training_goes_on_over_garbage_in_its_logs(tmp_path):
    unbroken = prepare_run(build_job(tmp_path / "unbroken"))
    run_with(unbroken)
    broken = prepare_run(build_job(tmp_path / "broken"))
    run_until(broken, 6)
    spoil(broken.checkpoint_dir / HISTORY_NAME)
    (broken.checkpoint_dir / EVENTS_NAME).write_bytes(GARBAGE)

    assert run_with(broken) == 6

    assert timeless(broken.checkpoint_dir) == timeless(unbroken.checkpoint_dir)
    assert [event.kind for event in read_events(broken.checkpoint_dir)] == ["resumed"]
