"""What is measured in which time, with a model of known cost under its own clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_samples import Clock, FakeModel

from pipeline.contract.errors import InferenceError
from serve_app.measuring import measure_cells, seq_lens, shape_grid, thread_counts

SHAPES = shape_grid(max_seq_len=64, max_batch_rows=32)


def measure(model, *, seconds=60.0, threads=(1, 2), shapes=SHAPES, on_time=lambda elapsed: None):
    return measure_cells(
        model.open,
        threads=threads,
        shapes=shapes,
        seconds=seconds,
        clock=model.clock,
        on_time=on_time,
    )


@pytest.mark.parametrize(
    ("cpus", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_threads_are_the_powers_of_two_and_all_cpus(cpus, counts):
    assert thread_counts(cpus) == counts


@pytest.mark.parametrize(
    ("longest", "lengths"), [(3, [3]), (8, [8]), (48, [8, 16, 32, 48]), (64, [8, 16, 32, 64])]
)
def test_lengths_double_up_to_the_longest_that_is_served(longest, lengths):
    assert seq_lens(longest) == lengths


def test_shapes_grow_and_stay_within_the_bundle():
    shapes = shape_grid(max_seq_len=16, max_batch_rows=3)

    assert shapes == [(1, 8), (1, 16), (2, 8), (2, 16)]


def test_with_time_every_shape_has_its_exact_time():
    model = FakeModel(Clock())

    measured = measure(model)

    assert measured.skipped == ()
    assert len(measured.cells) == 2 * len(SHAPES)
    for cell in measured.cells:
        assert cell.seconds == pytest.approx(model.seconds(cell.threads, cell.batch, cell.seq))
        assert cell.runs >= 5


def test_first_runs_do_not_count():
    clock = Clock()

    class SlowAtFirst(FakeModel):
        def open(self, threads):
            run, seen = super().open(threads), set()

            def run_slow_at_first(input_ids, mask):
                if input_ids.shape not in seen:
                    seen.add(input_ids.shape)
                    clock.now += 0.5
                run(input_ids, mask)

            return run_slow_at_first

    model = SlowAtFirst(clock, run=0.02)

    measured = measure(model, seconds=100.0, threads=[1], shapes=[(1, 8), (2, 8), (1, 16)])

    first = measured.cells[0]
    assert first.seconds == pytest.approx(model.seconds(1, 1, 8))


def test_a_busy_round_does_not_change_the_times():
    clock = Clock()
    model = FakeModel(clock, run=0.02)
    opened = []

    def open_busy(threads):
        opened.append(threads)
        if len(opened) != 3:
            return model.open(threads)
        run = model.open(threads)

        def run_busy(input_ids, mask):
            clock.now += 0.3
            run(input_ids, mask)

        return run_busy

    measured = measure_cells(
        open_busy, threads=[1], shapes=SHAPES, seconds=900.0, clock=clock, on_time=lambda _: None
    )

    assert len(opened) == 5
    for cell in measured.cells:
        assert cell.seconds == pytest.approx(model.seconds(1, cell.batch, cell.seq))


def test_shapes_that_would_take_too_long_are_left_out_and_named():
    model = FakeModel(Clock(), token=0.01)

    measured = measure(model, seconds=60.0)

    largest = max(cell.tokens for cell in measured.cells)
    assert (1, 32, 64) in measured.skipped
    assert {(c.threads, c.batch, c.seq) for c in measured.cells}.isdisjoint(measured.skipped)
    assert len(measured.cells) + len(measured.skipped) == 2 * len(SHAPES)
    assert 3 * largest * 0.01 <= 60.0


@given(token=st.floats(1e-6, 0.1), seconds=st.floats(0.1, 100.0), load=st.floats(0.0, 3.0))
def test_the_budget_is_kept_but_for_what_is_always_run(token, seconds, load):
    model = FakeModel(Clock(), token=token, load=load)
    started = model.clock.now

    measured = measure(model, seconds=seconds)

    # Three shapes, three runs of each, at each number of threads.
    always = sum(
        3 * model.seconds(count, *shape) for count in (1, 2) for shape in [(1, 8), (1, 64), (32, 8)]
    )
    assert model.clock.now - started <= seconds + always + 2 * load
    assert {cell.threads for cell in measured.cells} == {1, 2}


def test_the_shapes_that_a_fit_needs_are_run_however_short_the_time():
    measured = measure(FakeModel(Clock(), token=1.0), seconds=0.001)

    needed = {(1, 8), (1, 64), (32, 8)}
    assert needed <= {(cell.batch, cell.seq) for cell in measured.cells if cell.threads == 1}
    assert needed <= {(cell.batch, cell.seq) for cell in measured.cells if cell.threads == 2}


def test_a_shape_that_the_model_cannot_run_is_named():
    model = FakeModel(Clock(), failing=[(4, 16)])

    with pytest.raises(InferenceError, match=r"batch 4, seq 16, 1 threads.*export it again"):
        measure(model)


def test_time_passed_is_told():
    told = []

    measure(FakeModel(Clock()), on_time=told.append)

    assert told == sorted(told)
    assert told[-1] > 0.0
