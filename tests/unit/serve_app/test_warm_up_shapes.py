"""The shapes that a lane can form."""

from hypothesis import given
from hypothesis import strategies as st

from serve_app.warm_up import warm_up_shapes


def test_shapes_are_the_smallest_the_longest_and_the_fullest():
    shapes = warm_up_shapes(
        min_tokens=3, max_tokens=48, max_batch_tokens=512, max_batch_requests=32
    )

    assert shapes == [(1, 3), (1, 48), (10, 48), (32, 16)]


@given(
    lengths=st.tuples(st.integers(1, 600), st.integers(1, 600)).map(sorted),
    tokens=st.integers(1, 5000),
    rows=st.integers(1, 64),
)
def test_grouping_can_form_every_shape(lengths, tokens, rows):
    low, high = lengths
    budget = max(tokens, high)

    shapes = warm_up_shapes(
        min_tokens=low, max_tokens=high, max_batch_tokens=budget, max_batch_requests=rows
    )

    assert {(1, low), (1, high)} <= set(shapes)
    for batch, seq in shapes:
        assert 1 <= batch <= rows
        assert low <= seq <= high
        assert batch * seq <= budget


def test_a_lane_whose_longest_text_is_under_the_shortest_still_has_a_shape():
    shapes = warm_up_shapes(min_tokens=3, max_tokens=1, max_batch_tokens=8, max_batch_requests=2)

    assert shapes == [(1, 1), (2, 1)]
