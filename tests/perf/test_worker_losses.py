"""How far the losses of two processes are from those of one, over many steps."""

import pytest
from killed_training import finish, learned, start_together
from train_samples import build_job, prepare_run

pytestmark = pytest.mark.perf

TOLERANCE = 1e-4


def losses_of(folder, *, world_size, rows):
    job = build_job(folder, epochs=8, global_batch=8, micro_batch=4, base_lr=0.3)
    # Dropout draws differ by rank; without it the ranks only share out the same sum.
    calm = job.model.model_copy(update={"dropout": 0.0})
    run = prepare_run(job.model_copy(update={"model": calm}), rows=rows)
    logs = folder / "logs"
    processes = start_together(run, logs, world_size=world_size, moment=None)
    for rank, process in enumerate(processes):
        finish(process, log=logs / f"{rank}.jsonl")
    return [line["loss"] for line in learned(run.checkpoint_dir)[0]["history.jsonl"]]


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_give_the_losses_of_one(tmp_path, world_size):
    one = losses_of(tmp_path / "one", world_size=1, rows=160)
    many = losses_of(tmp_path / "many", world_size=world_size, rows=160)

    worst = max(abs(a - b) for a, b in zip(one, many, strict=True))
    print(
        f"\n{world_size} processes against 1, {len(one)} steps, losses {one[0]:.3f} to "
        f"{one[-1]:.3f}: at most {worst:.1e} apart"
    )
    assert worst <= TOLERANCE
