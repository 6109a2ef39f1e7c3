from io import StringIO
from threading import Event as Flag

import pytest
from record_samples import record_of, validation_of, write_history
from rich.console import Console

from pipeline.train.events import EventWriter
from pipeline.train.progress import describe_step, describe_time_left, show_progress


class Script:
    """A flag that lets something happen in the folder before each look; set after the last."""

    def __init__(self, *acts):
        self._acts = list(acts)

    def wait(self, timeout):
        if self._acts:
            self._acts.pop(0)()
        return not self._acts


def shown(folder, is_over, *, total_steps=100, **console):
    output = StringIO()
    console = Console(file=output, width=200, **console)
    show_progress(folder, total_steps=total_steps, is_over=is_over, console=console)
    return output.getvalue()


def test_speed_is_the_mean_over_the_given_records():
    records = [record_of(1, tokens=100, seconds=0.9), record_of(2, tokens=300, seconds=0.1)]

    expected = "loss 0.5000, lr 1.00e-04, 400 tokens/s, padding 5.0%, memory 12 MB"
    assert describe_step(records) == expected


def test_message_of_an_fp16_step_on_a_gpu_with_a_measurement():
    record = record_of(
        9,
        loss_scale=32768.0,
        memory_reserved_bytes=2_100_000_000,
        memory_peak_bytes=1_312_000_000,
    )

    message = describe_step([record], num_skipped=2, validation=validation_of(5))

    assert message == (
        "loss 0.5000, lr 1.00e-04, 3,000 tokens/s, padding 5.0%, "
        "memory 1,312 MB (2,100 reserved), loss scale 32768, 2 skipped, "
        "validation at step 5: loss 0.4000, accuracy 91.2%"
    )


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.1, "0:00:05 left"), (100.0, "1:23:20 left"), (0.0, "0:00:00 left")]
)
def test_time_left_is_the_other_steps_at_the_mean_speed(seconds, expected):
    assert describe_time_left([record_of(50, seconds=seconds)], total_steps=100) == expected


def test_lines_are_few_and_the_last_step_is_always_among_them(tmp_path):
    acts = [
        lambda k=k: write_history(tmp_path, [record_of(k)], after_step=k - 1) for k in range(1, 25)
    ]

    lines = shown(tmp_path, Script(*acts)).splitlines()

    assert [line.partition(":")[0] for line in lines] == [
        "step 1/100",
        "step 11/100",
        "step 21/100",
        "step 24/100",
    ]
    figures = describe_step([record_of(24)])
    assert lines[-1] == f"step 24/100: {figures}, 0:00:08 left"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_each_new_event_is_told_once_and_old_ones_never(tmp_path, is_terminal):
    writer = EventWriter(tmp_path, clock=lambda: 0.0)
    writer.write("resumed", "goes on from step 3", step=3)
    acts = [
        lambda: writer.write("out_of_memory", "micro-batch [32] -> [16]", step=5),
        lambda: write_history(tmp_path, [record_of(5)]),
        lambda: writer.write("preempted", "saved", step=6),
    ]

    output = shown(tmp_path, Script(*acts), force_terminal=is_terminal)

    assert "resumed" not in output
    assert output.count("step 5, out of memory: micro-batch [32] -> [16]\n") == 1
    assert output.count("step 6, preempted: saved\n") == 1


def test_bar_of_a_training_that_stopped_early_is_full(tmp_path):
    write_history(tmp_path, [record_of(step) for step in range(1, 51)])
    stop = Script(lambda: EventWriter(tmp_path).write("early_stop", "no better", step=50))

    output = shown(tmp_path, stop, force_terminal=True)

    assert "step 50/50" in output
    assert "stopped early" in output


def test_progress_on_a_terminal_draws_the_last_step(tmp_path):
    write_history(tmp_path, [record_of(step) for step in range(1, 51)])
    is_over = Flag()
    is_over.set()

    output = shown(tmp_path, is_over, force_terminal=True)

    assert "step 50/100" in output
    assert "3,000 tokens/s" in output
    assert "0:00:05 left" in output


def test_progress_before_the_first_step_waits_for_the_workers(tmp_path):
    is_over = Flag()
    is_over.set()

    assert shown(tmp_path, is_over) == ""
    assert "starting the workers" in shown(tmp_path, is_over, force_terminal=True)


def test_skipped_steps_are_counted_anew_when_the_history_is_cut_back(tmp_path):
    steps = [record_of(step, skipped=step in (2, 4), seconds=0.125 * step) for step in range(1, 6)]
    repeated = [record_of(step, skipped=step == 4, seconds=0.1) for step in range(4, 9)]
    acts = [
        lambda: write_history(tmp_path, steps),
        lambda: write_history(tmp_path, repeated, after_step=3),
    ]

    lines = shown(tmp_path, Script(*acts), total_steps=8).splitlines()

    assert all(", 2 skipped" in line for line in lines)
    assert len(lines) == 2


@pytest.mark.parametrize("is_terminal", [False, True])
def test_lines_that_cannot_be_read_are_passed_over_with_their_number(tmp_path, is_terminal):
    def spoil(name, content):
        with (tmp_path / name).open("ab") as file:
            file.write(content)

    acts = [
        lambda: write_history(tmp_path, [record_of(1), validation_of(1)]),
        lambda: spoil("history.jsonl", b"\x00\xff\n{}\n"),
        lambda: spoil("events.jsonl", b'{"step": 1, "ki\n'),
        lambda: write_history(tmp_path, [record_of(2)], after_step=1),
    ]

    output = shown(tmp_path, Script(*acts), total_steps=2, force_terminal=is_terminal)

    assert output.count("passed over in history.jsonl: 2 lines that cannot be read\n") == 1
    assert output.count("passed over in events.jsonl: 1 line that cannot be read\n") == 1
    assert "validation.jsonl" not in output
    assert "step 2/2" in output
