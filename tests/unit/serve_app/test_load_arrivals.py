"""When requests are due: laws of the drawn times, and what a recorded trace may hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.errors import ConfigError, DataError
from serve_app.load.arrivals import poisson_due_times, trace_due_times


def replay(file, *, column="arrival_s", speed=1.0, seconds=60.0):
    return trace_due_times(file, column=column, speed=speed, seconds=seconds)


@pytest.fixture
def trace(tmp_path):
    def write(*rows, header="arrival_s,tokens"):
        file = tmp_path / "trace.csv"
        file.write_text("\n".join([header, *rows]) + "\n")
        return file

    return write


@given(seed=st.integers(0, 2**31), rate=st.floats(0.5, 500.0), seconds=st.floats(0.1, 20.0))
def test_poisson_times_ascend_within_the_run_and_a_seed_fixes_them(seed, rate, seconds):
    times = poisson_due_times(rate_per_s=rate, seconds=seconds, seed=seed)

    again = poisson_due_times(rate_per_s=rate, seconds=seconds, seed=seed)
    longer = poisson_due_times(rate_per_s=rate, seconds=2 * seconds, seed=seed)
    assert np.array_equal(times, again)
    assert np.array_equal(times, longer[: len(times)])
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times < seconds))


def test_poisson_times_have_the_rate_and_its_spread():
    times = poisson_due_times(rate_per_s=50.0, seconds=1000.0, seed=7)

    gaps = np.diff(times)
    # 50,000 gaps: five standard errors of the mean are 2.3 %.
    assert len(times) == pytest.approx(50_000, rel=0.023)
    assert gaps.mean() == pytest.approx(0.02, rel=0.023)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)


def test_another_seed_gives_other_times():
    one, other = (poisson_due_times(rate_per_s=10.0, seconds=5.0, seed=seed) for seed in (1, 2))

    assert one[0] != other[0]


def test_too_many_requests_are_refused():
    with pytest.raises(ConfigError, match=r"--rate: .* over 10,000,000 requests.*Lower"):
        poisson_due_times(rate_per_s=1e5, seconds=1e5, seed=0)


def test_a_trace_begins_at_0_and_is_replayed_at_its_speed(trace):
    file = trace("100,7", "103,9", "110,1")

    found = replay(file, speed=2.0)

    assert found.due_s.tolist() == [0.0, 1.5, 5.0]
    assert not found.is_cut


def test_a_trace_is_cut_where_the_run_ends(trace):
    found = replay(trace("0,1", "4,1", "5,1", "nonsense later,1"), seconds=5.0)

    assert found.due_s.tolist() == [0.0, 4.0]
    assert found.is_cut


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0,1", "two,1"], r"trace.csv:3, column arrival_s: is no number of seconds \(got 'two'\)"),
        (["0,1", "nan,1"], "is no number of seconds"),
        (["5,1", "4,1"], r"trace.csv:3, column arrival_s: goes back in time, after 5 \(got '4'\)"),
        ([], "has no rows"),
    ],
)
def test_a_row_that_is_no_time_is_named(trace, rows, message):
    with pytest.raises(DataError, match=message):
        replay(trace(*rows))


def test_a_missing_column_names_those_that_are_there(trace):
    with pytest.raises(
        ConfigError, match=r"no column 'arrivals'.*Did you mean arrival_s\?.*tokens"
    ):
        replay(trace("0,1"), column="arrivals")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")

    for name, problem in (("none.csv", "No such file"), ("binary.csv", "UTF-8")):
        with pytest.raises(ConfigError, match=rf"--arrivals .*{name}: .*{problem}"):
            replay(tmp_path / name)
