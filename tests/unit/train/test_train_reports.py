import pytest
from record_samples import record_of, write_history

from pipeline.train.events import EVENTS_NAME, EventWriter, read_events
from pipeline.train.history import HISTORY_NAME, read_history, read_latest_records
from pipeline.train.recorder import Recorder


def write(folder, steps, *, after_step=0):
    write_history(folder, map(record_of, steps), after_step=after_step)


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


@pytest.mark.parametrize(
    "left", [b"\0\0\0\n", b"\xff\n", b"{}\n", b"[1]\n", b'{"step": "x"}\n', b'oss": 0.1}\n{']
)
def test_what_a_power_cut_left_at_the_end_of_a_history_does_not_stop_the_next_run(tmp_path, left):
    write(tmp_path, [1, 2, 3])
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(left)

    assert [record.step for record in read_latest_records(tmp_path)] == [1, 2, 3]
    write(tmp_path, [3], after_step=2)

    assert [record.step for record in read_history(tmp_path)] == [1, 2, 3]


def test_half_an_event_does_not_spoil_the_next(tmp_path):
    whole = '{"step": 1, "kind": "skipped", "message": "told before", "time_s": 1.0}\n'
    (tmp_path / EVENTS_NAME).write_text(whole + '{"step": 4, "ki')

    recorder = Recorder(tmp_path, rank=0, after_step=3, observers=())
    recorder.event("resumed", "goes on", step=3)
    recorder.close()

    assert [event.message for event in read_events(tmp_path)] == ["told before", "goes on"]


def test_event_may_hold_what_other_programs_take_for_the_end_of_a_line(tmp_path):
    message = "no room: \u2028 \x85 said the factory"

    EventWriter(tmp_path).write("out_of_memory", message, step=1)
    with (tmp_path / EVENTS_NAME).open("ab") as file:
        file.write('{"half": "é'.encode()[:-1])

    assert [event.message for event in read_events(tmp_path)] == [message]


def test_latest_records_are_the_whole_lines_at_the_end(tmp_path):
    write(tmp_path, range(1, 1001))

    latest = [record.step for record in read_latest_records(tmp_path)]

    assert latest == list(range(latest[0], 1001))
    assert 30 < len(latest) < 200


def test_no_history_has_no_records(tmp_path):
    assert read_history(tmp_path) == read_latest_records(tmp_path) == []
