"""SIGKILL at any moment of a training changes nothing of what is learned."""

import signal

import pytest
from killed_training import (
    Moment,
    demand_equal,
    demand_sound,
    finish,
    kill_together,
    learned,
    read_order,
    start_alone,
    start_together,
)
from train_samples import build_job, prepare_run, write_shards

pytestmark = pytest.mark.slow

# Three epochs of five steps, the last of each with four rows; checkpoints after 3, 6, 9 and 12.
SETTINGS = {
    "epochs": 3,
    "global_batch": 8,
    "micro_batch": 2,
    "augmentation": {"token_dropout": 0.1},
}
ROWS = 36
DEATHS = (-signal.SIGKILL, -signal.SIGXFSZ)


def train_to_end(job, log):
    finish(start_alone(job, log=log), log=log)


def test_kills_in_a_save_on_an_epochs_end_and_in_accumulation_change_nothing(tmp_path):
    unbroken = build_job(tmp_path / "unbroken", **SETTINGS)
    killed = build_job(tmp_path / "killed", **SETTINGS)
    write_shards(unbroken, rows=ROWS)
    write_shards(killed, rows=ROWS)
    train_to_end(unbroken, tmp_path / "logs/unbroken.jsonl")
    moments = [
        Moment(event="half_written", step=6),
        Moment(event="not_renamed", step=6),
        Moment(event="not_in_manifest", step=6),
        Moment(event="after_update", step=10),
        Moment(event="in_forward", step=12, micro_batch=2),
        Moment(event="not_in_manifest", step=15),
    ]
    logs = [tmp_path / f"logs/{number}.jsonl" for number in range(len(moments) + 1)]

    for moment, log in zip(moments, logs[:-1], strict=True):
        finish(start_alone(killed, log=log, moment=moment), log=log, exit_codes=DEATHS)
        demand_sound(killed.checkpoint_dir)
    train_to_end(killed, logs[-1])

    demand_equal(learned(killed.checkpoint_dir), learned(unbroken.checkpoint_dir))
    expected = read_order([tmp_path / "logs/unbroken.jsonl"])
    assert list(expected) == list(range(1, 16))
    for log in logs:
        order = read_order([log])
        assert order
        assert order == {step: expected[step] for step in order}


def test_lost_rank_and_other_numbers_of_workers_keep_rows_and_losses(tmp_path):
    # Dropout draws differ by rank; without it the ranks only share out the same sum.
    jobs = [build_job(tmp_path / name, **SETTINGS) for name in ("unbroken", "killed")]
    calm = jobs[0].model.model_copy(update={"dropout": 0.0})
    unbroken, killed = (
        prepare_run(job.model_copy(update={"model": calm}), rows=ROWS) for job in jobs
    )
    expected_folder = tmp_path / "logs/unbroken"
    [alone] = start_together(unbroken, expected_folder, world_size=1, moment=None)
    finish(alone, log=expected_folder / "0.jsonl")
    folders = [tmp_path / "logs" / name for name in ("two", "one", "three")]

    in_forward = Moment(event="in_forward", step=5)
    kill_together(killed, folders[0], world_size=2, moment=in_forward)
    kill_together(killed, folders[1], world_size=1, moment=Moment(event="after_update", step=10))
    last = start_together(killed, folders[2], world_size=3, moment=None)
    for rank, process in enumerate(last):
        finish(process, log=folders[2] / f"{rank}.jsonl")

    histories = [learned(run.checkpoint_dir)[0]["history.jsonl"] for run in (killed, unbroken)]
    found, expected = ([line["loss"] for line in lines] for lines in histories)
    assert found == pytest.approx(expected, abs=1e-5)
    assert [line["lr"] for line in histories[0]] == [line["lr"] for line in histories[1]]
    rows = read_order([expected_folder / "0.jsonl"])
    for folder, end in zip(folders, (5, 11, 16), strict=True):
        order = read_order(sorted(folder.glob("*.jsonl")))
        # Checkpoints are written beside the steps: the newest may not be there yet.
        first = min(order)
        assert first % 3 == 1
        assert sorted(order) == list(range(first, end))
        assert all(sorted(order[step]) == sorted(rows[step]) for step in order)
