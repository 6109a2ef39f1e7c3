from io import StringIO
from threading import Event

from rich.console import Console

from pipeline.train.history import (
    HISTORY_NAME,
    HistoryWriter,
    StepRecord,
    read_history,
    read_latest_records,
)
from pipeline.train.progress import describe_step, show_progress


def record_of(step, **changes):
    values = {
        "step": step,
        "epoch": 0,
        "loss": 0.5,
        "lr": 1e-4,
        "grad_norm": 1.0,
        "tokens": 300,
        "padding_share": 0.05,
        "seconds": 0.1,
        "loss_scale": 1.0,
        "skipped": False,
        "micro_batch": 32,
        "longest": 12,
        "memory_allocated_bytes": 1000,
        "memory_reserved_bytes": None,
        "memory_peak_bytes": 2000,
    }
    return StepRecord(**{**values, **changes})


def write(folder, steps, *, after_step=0):
    with HistoryWriter(folder, after_step=after_step) as history:
        for step in steps:
            history.append(record_of(step))


def test_history_is_cut_back_to_the_resumed_step(tmp_path):
    write(tmp_path, range(1, 8))

    write(tmp_path, [5, 6], after_step=4)

    assert [record.step for record in read_history(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_half_a_line_is_not_a_record(tmp_path):
    write(tmp_path, [1, 2])
    with (tmp_path / HISTORY_NAME).open("a") as file:
        file.write('{"step": 3')

    assert [record.step for record in read_history(tmp_path)] == [1, 2]
    assert [record.step for record in read_latest_records(tmp_path)] == [1, 2]


def test_latest_records_are_the_whole_lines_at_the_end(tmp_path):
    write(tmp_path, range(1, 1001))

    latest = [record.step for record in read_latest_records(tmp_path)]

    assert latest == list(range(latest[0], 1001))
    assert 30 < len(latest) < 200


def test_no_history_has_no_records(tmp_path):
    assert read_history(tmp_path) == read_latest_records(tmp_path) == []


def test_speed_is_the_mean_over_the_given_records():
    records = [record_of(1, tokens=100, seconds=0.9), record_of(2, tokens=300, seconds=0.1)]

    assert describe_step(records) == "loss 0.5000, lr 1.00e-04, 400 tokens/s, padding 5.0%"


def test_progress_without_a_terminal_prints_few_lines_and_the_time_left(tmp_path):
    write(tmp_path, range(1, 51))
    is_over, output = Event(), StringIO()
    is_over.set()

    show_progress(tmp_path, total_steps=100, is_over=is_over, console=Console(file=output))

    expected = "step 50/100: loss 0.5000, lr 1.00e-04, 3,000 tokens/s, padding 5.0%, 5 s left\n"
    assert output.getvalue().replace("\n", " ").strip() == expected.strip()


def test_progress_on_a_terminal_draws_the_last_step(tmp_path):
    write(tmp_path, range(1, 51))
    is_over, output = Event(), StringIO()
    is_over.set()

    console = Console(file=output, force_terminal=True, width=120)
    show_progress(tmp_path, total_steps=100, is_over=is_over, console=console)

    assert "step 50/100" in output.getvalue()
    assert "3,000 tokens/s" in output.getvalue()
