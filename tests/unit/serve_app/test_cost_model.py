"""The cost of a run, fitted to measured ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_samples import Clock, FakeModel, cells_of

from serve_app.cost_model import Cell, fit_cost

SHAPES = [(batch, seq) for batch in (1, 4, 32) for seq in (8, 64, 512)]
COEFFICIENTS = st.floats(1e-3, 1.0)


@given(run=COEFFICIENTS, token=COEFFICIENTS, token_seq=COEFFICIENTS)
def test_a_known_cost_is_found_again(run, token, token_seq):
    model = FakeModel(Clock(), run=run, token=token * 1e-3, token_seq=token_seq * 1e-6)

    fit = fit_cost(cells_of(model, SHAPES, threads=1))

    np.testing.assert_allclose((fit.run_s, fit.token_s, fit.token_seq_s), model.cost, rtol=1e-6)
    assert fit.worst_error < 1e-9


@pytest.mark.parametrize("absent", ["run", "token", "token_seq"])
def test_a_term_that_costs_nothing_is_zero(absent):
    model = FakeModel(Clock(), **{absent: 0.0})

    fit = fit_cost(cells_of(model, SHAPES))

    np.testing.assert_allclose((fit.run_s, fit.token_s, fit.token_seq_s), model.cost, atol=1e-12)


@pytest.mark.slow
@given(st.lists(st.floats(1e-4, 10.0), min_size=len(SHAPES), max_size=len(SHAPES)))
def test_no_cost_is_negative_and_the_errors_are_those_of_the_cells(seconds):
    cells = [
        Cell(threads=2, batch=batch, seq=seq, seconds=taken, runs=1)
        for (batch, seq), taken in zip(SHAPES, seconds, strict=True)
    ]

    fit = fit_cost(cells)

    errors = [abs(fit.seconds(c.batch, c.seq) / c.seconds - 1.0) for c in cells]
    assert min(fit.run_s, fit.token_s, fit.token_seq_s) >= 0.0
    assert fit.threads == 2
    assert fit.worst_error == pytest.approx(max(errors))
    assert fit.median_error == pytest.approx(np.median(errors))


def test_one_cell_alone_is_fitted_exactly():
    fit = fit_cost([Cell(threads=1, batch=2, seq=8, seconds=0.5, runs=1)])

    assert fit.seconds(2, 8) == pytest.approx(0.5)


def test_seconds_of_many_shapes_come_at_once():
    fit = fit_cost(cells_of(FakeModel(Clock(), run=1.0, token=0.1, token_seq=0.01), SHAPES))

    seconds = fit.seconds(np.array([1, 2]), np.array([10, 20]))

    np.testing.assert_allclose(seconds, [1 + 1 + 1, 1 + 4 + 8])


def test_cells_of_no_or_several_thread_counts_are_refused():
    model = FakeModel(Clock())
    with pytest.raises(ValueError, match=r"one number of threads, got \[\]"):
        fit_cost([])
    with pytest.raises(ValueError, match=r"got \[1, 2\]"):
        fit_cost([*cells_of(model, SHAPES, threads=1), *cells_of(model, SHAPES, threads=2)])
