import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_samples import step_row, validation_row

from pipeline.evaluate.training_charts import (
    draw_loss,
    draw_memory,
    draw_optimisation,
    draw_speed,
    draw_validation,
    thin,
)

STEPS = [step_row(step) for step in range(1, 6)]


def test_the_loss_chart_marks_the_latest_best_measurement():
    validations = [
        validation_row(2, loss=0.5),
        validation_row(4, loss=0.4),
        validation_row(5, loss=0.45, is_best=False),
    ]

    chart = draw_loss(STEPS, validations, best_by="macro F1")

    assert "best: 0.400" in chart.svg
    assert chart.caption.endswith("The ring is the best measurement by macro F1, step 4.")


def test_the_loss_chart_without_validation_has_no_legend():
    chart = draw_loss(STEPS, [], best_by="loss")

    assert "validation" not in chart.svg
    assert chart.caption == "Training loss of every step."


@pytest.mark.slow
def test_steps_without_a_finite_loss_leave_the_loss_chart_whole():
    odd = [step_row(6, loss=None, grad_norm=None, skipped=True), step_row(7, loss=float("inf"))]

    assert (
        draw_loss([*STEPS, *odd], [], best_by="loss").svg
        == draw_loss(STEPS, [], best_by="loss").svg
    )
    assert draw_loss(odd, [], best_by="loss").svg


@pytest.mark.slow
def test_the_loss_scale_is_drawn_only_where_there_is_one():
    fp16 = [step_row(1, loss_scale=65536.0), step_row(2, loss_scale=32768.0, skipped=True)]

    with_scale, without = draw_optimisation(fp16), draw_optimisation(STEPS)

    assert "1 steps skipped (marked)" in with_scale.caption
    assert "loss scale" in with_scale.title
    assert "scale" not in without.caption
    assert ">scale<" not in without.svg


def test_validation_figures_that_were_not_measured_are_not_drawn():
    plain = draw_validation([validation_row(1)], measure="exact match", best_by="loss")
    tagged = draw_validation(
        [validation_row(1, entity_f1=0.25)], measure="accuracy", best_by="loss"
    )

    assert "exact match 75.0%" in plain.caption
    assert "entity F1" not in plain.svg
    assert "entity F1 25.0%" in tagged.caption


def test_speed_counts_real_tokens_and_weighs_padding_by_tokens():
    steps = [
        step_row(1, tokens=100, seconds=1.0, padding_share=0.0),
        step_row(2, tokens=100, seconds=3.0, padding_share=0.5),
    ]

    chart = draw_speed(steps)

    # 200 tokens in 4 s; 100 and 200 tokens were run.
    assert "50 per second" in chart.caption
    assert "33.3% of all tokens" in chart.caption


@pytest.mark.slow
def test_memory_names_what_a_cpu_and_a_gpu_have_and_where_the_micro_batch_fell():
    gpu = [
        step_row(
            step, memory_reserved_bytes=3 * 10**9, memory_peak_bytes=2 * 10**9, micro_batch=rows
        )
        for step, rows in ((1, 32), (2, 16), (3, 16))
    ]

    on_cpu, on_gpu = draw_memory(STEPS), draw_memory(gpu)

    assert "resident" in on_cpu.svg
    assert "reserved" not in on_cpu.svg
    assert "peak 4.0 MB" in on_cpu.caption
    assert "reserved" in on_gpu.svg
    assert "peak 2.0 GB. Dashed: the micro-batch fell to 16 at step 2." in on_gpu.caption


@pytest.mark.slow
@pytest.mark.parametrize("draw", [draw_optimisation, draw_speed, draw_memory])
def test_charts_stand_a_single_step(draw):
    assert draw([step_row(1, lr=0.0, grad_norm=None, tokens=0)]).svg


def test_a_long_run_stays_small_and_keeps_its_peak():
    values = np.zeros(100_000)
    values[54_321] = 9.0

    shown = thin(values)

    assert len(shown) < 3000
    assert 54_321 in shown
    assert (shown[0], shown[-1]) == (0, 99_999)


@pytest.mark.slow
@given(st.integers(1, 20_000))
def test_thinned_places_ascend_and_keep_both_ends(count):
    shown = thin(np.arange(count, dtype=np.float64))

    assert (np.diff(shown) > 0).all()
    assert (shown[0], shown[-1]) == (0, count - 1)
