import pytest

from pipeline.config import TrainSettings
from pipeline.train.schedule import Schedule, build_schedule, describe_schedule, lr_at


def test_peak_grows_with_the_global_batch():
    settings = TrainSettings(global_batch=512, base_lr=3e-4)

    assert build_schedule(settings, total_steps=100).max_lr == pytest.approx(6e-4)
    assert build_schedule(settings, total_steps=100).warmup_steps == 5


def test_warm_up_is_linear_and_the_cosine_ends_at_min_lr():
    schedule = Schedule(max_lr=1.0, min_lr=0.2, warmup_steps=4, total_steps=12)

    values = [lr_at(schedule, step) for step in range(1, 13)]

    assert values[:4] == [0.25, 0.5, 0.75, 1.0]
    assert values[7] == pytest.approx(0.6)  # half of the way down
    assert values[-1] == pytest.approx(0.2)
    assert values[3:] == sorted(values[3:], reverse=True)


@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_without_warm_up_the_first_step_is_at_the_peak(warmup_steps):
    schedule = Schedule(max_lr=1.0, min_lr=0.0, warmup_steps=warmup_steps, total_steps=3)

    assert [lr_at(schedule, step) for step in (1, 2, 3)] == pytest.approx([1.0, 0.5, 0.0])


def test_single_step_has_a_learning_rate():
    schedule = Schedule(max_lr=1.0, min_lr=0.0, warmup_steps=1, total_steps=1)

    assert lr_at(schedule, 1) == 1.0


def test_learning_rate_is_described_with_the_numbers_that_it_comes_from():
    settings = TrainSettings(base_lr=1.2e-3, global_batch=32)

    text = describe_schedule(settings, total_steps=92)

    assert text == (
        "learning rate: up to 0.00015 (base_lr 0.0012 × global_batch 32 / 256) over 5 steps, "
        "then a cosine down to 0 at step 92"
    )
