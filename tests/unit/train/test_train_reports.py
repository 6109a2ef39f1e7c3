from record_samples import record_of, write_history

from pipeline.train.history import HISTORY_NAME, read_history, read_latest_records


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


def test_latest_records_are_the_whole_lines_at_the_end(tmp_path):
    write(tmp_path, range(1, 1001))

    latest = [record.step for record in read_latest_records(tmp_path)]

    assert latest == list(range(latest[0], 1001))
    assert 30 < len(latest) < 200


def test_no_history_has_no_records(tmp_path):
    assert read_history(tmp_path) == read_latest_records(tmp_path) == []
