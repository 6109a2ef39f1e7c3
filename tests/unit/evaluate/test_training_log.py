import json

import pytest
from log_samples import step_row, validation_row, write_lines

from pipeline.contract.errors import MissingFileError
from pipeline.evaluate.training_log import read_training_log

EVENT = {"step": 3, "kind": "skipped", "message": "one\u2028line", "time_s": 1.5}


def test_only_the_steps_must_be_there(tmp_path):
    write_lines(tmp_path / "history.jsonl", [step_row(1)])

    log = read_training_log(tmp_path)

    assert (len(log.steps), log.validations, log.events) == (1, [], [])


def test_empty_files_are_no_rows(tmp_path):
    for name in ("history.jsonl", "validation.jsonl", "events.jsonl"):
        write_lines(tmp_path / name, [])

    log = read_training_log(tmp_path)

    assert log.steps == log.validations == log.events == []


def test_what_was_done_again_counts_once_as_it_was_done_last(tmp_path):
    steps = [step_row(1), step_row(2), step_row(3), step_row(2, loss=0.25)]
    write_lines(tmp_path / "history.jsonl", steps)
    write_lines(
        tmp_path / "validation.jsonl",
        [validation_row(2, loss=0.9), validation_row(2, loss=0.4)],
    )

    log = read_training_log(tmp_path)

    assert [row["step"] for row in log.steps] == [1, 2, 3]
    assert log.steps[1]["loss"] == 0.25
    assert [row["loss"] for row in log.validations] == [0.4]


def test_every_event_is_kept_in_its_order(tmp_path):
    write_lines(tmp_path / "history.jsonl", [step_row(1)])
    events = [EVENT, {**EVENT, "kind": "resumed"}, EVENT]
    text = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
    (tmp_path / "events.jsonl").write_text(text, encoding="utf-8")

    assert read_training_log(tmp_path).events == events


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path):
    write_lines(tmp_path / "history.jsonl", [step_row(1)])
    whole = json.dumps(EVENT).encode() + b"\n"
    (tmp_path / "events.jsonl").write_bytes(whole + '{"message": "ä'.encode()[:-1])

    assert read_training_log(tmp_path).events == [EVENT]


def test_without_steps_the_log_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match=r"history\.jsonl.*textlane train --force"):
        read_training_log(tmp_path)


BAD_LINES = [
    b"",
    b"{",
    b"[1]",
    b"[" * 100_000,
    b"\x00\x00\x00\xff\xfe\x1f",
    b'{"step": 1, "time_s": 2}',
    json.dumps({**EVENT, "step": "3"}).encode(),
    json.dumps({**EVENT, "time_s": True}).encode(),
    json.dumps({**EVENT, "time_s": 1e20}).encode(),
    json.dumps({**EVENT, "step": 10**400}).encode(),
    b'{"step": NaN, "kind": "skipped", "message": "", "time_s": 1}',
    b'{"step": 3, "kind": "ski{"step": 3, "kind": "skipped", "message": "", "time_s": 1}',
]


@pytest.mark.parametrize("line", BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_spoilt_line_is_passed_over_and_counted(tmp_path, line):
    write_lines(tmp_path / "history.jsonl", [step_row(1)])
    whole = json.dumps(EVENT).encode()
    (tmp_path / "events.jsonl").write_bytes(b"\n".join([whole, line, whole, b""]))

    log = read_training_log(tmp_path)

    assert log.events == [EVENT, EVENT]
    assert log.passed_over == {"events.jsonl": 1}


def test_spoilt_lines_of_all_files_are_counted_apart(tmp_path):
    rows = {"history.jsonl": [step_row(1), step_row(2, loss="x")], "validation.jsonl": [{}, {}]}
    for name, lines in rows.items():
        write_lines(tmp_path / name, lines)

    log = read_training_log(tmp_path)

    assert [row["step"] for row in log.steps] == [1]
    assert log.passed_over == {"history.jsonl": 1, "validation.jsonl": 2}
