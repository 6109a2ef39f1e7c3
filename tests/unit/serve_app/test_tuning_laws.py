"""What holds of every choice."""

import numpy as np
import pytest
from bundles import write_tiny_bundle
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_samples import bounds_of, fit_of, lengths_of

from serve_app.config import ServeSettings
from serve_app.encoding import choose_lane
from serve_app.limits import resolve_limits
from serve_app.tuning_choice import choose, choose_cut

SECONDS = st.floats(0.0, 1.0)


@st.composite
def problems(draw):
    max_seq_len = draw(st.integers(3, 600))
    tokens = draw(st.sets(st.integers(1, max_seq_len), min_size=1, max_size=12))
    counts = draw(st.lists(st.integers(1, 9), min_size=len(tokens), max_size=len(tokens)))
    threads = draw(st.sets(st.sampled_from([1, 2, 4, 8]), min_size=1))
    fits = [
        fit_of(
            threads=count,
            run=draw(st.floats(1e-6, 1.0)),
            token=draw(SECONDS) * 1e-3,
            token_seq=draw(SECONDS) * 1e-6,
        )
        for count in sorted(threads)
    ]
    bounds = bounds_of(
        cpus=max(threads),
        max_seq_len=max_seq_len,
        max_batch_rows=draw(st.integers(1, 64)),
        most_tokens=draw(st.integers(max_seq_len, 64 * max_seq_len)),
    )
    return fits, lengths_of(sorted(tokens), counts), bounds


@pytest.mark.slow
@settings(max_examples=40)
@given(problems())
def test_every_choice_can_be_served(problem):
    fits, lengths, bounds = problem

    choice = choose(fits, lengths=lengths, bounds=bounds)

    assert 1 <= choice.short_max_tokens < bounds.max_seq_len
    assert bounds.max_seq_len <= choice.max_batch_tokens <= bounds.most_tokens
    assert 1 <= choice.max_batch_requests <= bounds.max_batch_rows
    assert choice.threads_per_replica in {fit.threads for fit in fits}
    for lane, low, high in (
        (choice.short, 1, choice.short_max_tokens),
        (choice.long, choice.short_max_tokens + 1, bounds.max_seq_len),
    ):
        for batch, seq in lane.warm_up:
            assert batch <= choice.max_batch_requests
            assert batch * seq <= choice.max_batch_tokens
            assert low <= seq <= high


@pytest.mark.slow
@settings(max_examples=40)
@given(problems())
def test_the_lanes_share_all_texts_and_neither_has_more_than_it_can_do(problem):
    fits, lengths, bounds = problem

    choice = choose(fits, lengths=lengths, bounds=bounds)

    assert choice.short.texts_share + choice.long.texts_share == pytest.approx(1.0)
    short = lengths.shares[lengths.tokens <= choice.short_max_tokens].sum()
    assert choice.short.texts_share == pytest.approx(short)
    work = (choice.short.load_s, choice.long.load_s)
    assert choice.texts_per_s * max(work) <= 1.0 + 1e-9
    assert choice.texts_per_s * sum(work) * choice.threads_per_replica <= bounds.cpus + 1e-9


@pytest.mark.slow
@given(
    tokens=st.sets(st.integers(1, 60), min_size=1, max_size=10).map(sorted),
    data=st.data(),
)
def test_no_cut_leaves_the_busier_lane_less(tokens, data):
    counts = data.draw(st.lists(st.integers(1, 9), min_size=len(tokens), max_size=len(tokens)))
    seconds = np.array([data.draw(st.floats(0.001, 1.0)) for _ in tokens])
    lengths = lengths_of(tokens, counts)

    def busier(cut):
        work = seconds * lengths.shares
        return max(work[lengths.tokens <= cut].sum(), work[lengths.tokens > cut].sum())

    cut = choose_cut(seconds, lengths, max_seq_len=60)

    assert busier(cut) == pytest.approx(min(busier(other) for other in range(1, 60)))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("laws") / "bundle", max_seq_len=16)


@settings(max_examples=20)
@given(tokens=st.sets(st.integers(1, 16), min_size=1).map(sorted))
def test_serving_warms_up_what_the_choice_lists_and_gives_every_length_one_lane(bundle, tokens):
    bounds = bounds_of(max_seq_len=16, most_tokens=512)
    choice = choose([fit_of(run=1e-3, token=1e-4)], lengths=lengths_of(tokens), bounds=bounds)

    limits = resolve_limits(ServeSettings(bundle="b"), bundle, choice)

    assert tuple(limits.warm_up("short")) == choice.short.warm_up
    assert tuple(limits.warm_up("long")) == choice.long.warm_up
    lanes = [choose_lane(length, limits) for length in range(1, 17)]
    assert lanes == sorted(lanes, reverse=True)
    assert lanes.count("short") == choice.short_max_tokens
