import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.lengths import length_histogram
from pipeline.data.picture import draw_lengths, spread_labels

PADDING = {"random": 0.584, "buckets": 0.098, "buckets_window": 0.01}


def bucket(edge, rows=10):
    return {"edge": edge, "rows": rows, "tokens": 9, "padding_to_edge": 0.12, "padding": 0.03}


def texts_of(svg):
    return [
        "".join(node.itertext())
        for node in ElementTree.fromstring(svg).iter()
        if node.tag.endswith("}text")
    ]


@pytest.mark.slow
def test_the_picture_shows_edges_rows_and_paddings():
    histogram = length_histogram([3, 4, 4, 60, 512, 512])

    svg = draw_lengths(
        histogram=histogram, buckets=[bucket(60, 4), bucket(512, 2)], padding=PADDING
    )

    texts = texts_of(svg)
    assert "6 train rows, 1,095 tokens, 2 buckets" in texts
    assert {"60", "512", "3–60", "61–512", "12.0%", "3.0%", "58.4%", "9.8%", "1.0%"} <= set(texts)
    assert {"random order", "buckets", "buckets + window"} <= set(texts)


@pytest.mark.slow
@pytest.mark.parametrize("edges", [[7], [5, 9], [*range(10, 170, 10)], [*range(8, 520, 8)]])
def test_few_and_many_buckets_are_drawn_with_their_last_edge(edges):
    svg = draw_lengths(
        histogram=length_histogram([4, edges[-1]]),
        buckets=[bucket(edge) for edge in edges],
        padding=dict.fromkeys(PADDING, 0.0),
    )

    assert str(edges[-1]) in texts_of(svg)


@pytest.mark.slow
def test_equal_figures_give_equal_text_whatever_the_user_has_set():
    figures = {"histogram": length_histogram([3, 9]), "buckets": [bucket(9)], "padding": PADDING}

    first = draw_lengths(**figures)
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "svg.hashsalt": None}):
        second = draw_lengths(**figures)

    assert first == second


@pytest.mark.slow
def test_the_file_stands_alone_in_light_and_dark():
    svg = draw_lengths(histogram=length_histogram([3, 9]), buckets=[bucket(9)], padding=PADDING)

    assert svg.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<svg ')
    assert "prefers-color-scheme: dark" in svg
    assert not re.search(r"var\(|#a1000|<metadata", svg)


@settings(max_examples=60)
@given(
    places=st.lists(st.floats(0, 100), min_size=1, max_size=20).map(sorted),
    gap=st.floats(0.01, 5),
)
def test_labels_stay_in_order_apart_and_inside(places, gap):
    spread = spread_labels(places, gap=gap, low=0, high=100)

    assert (np.diff(spread) >= gap - 1e-9).all()
    assert spread[0] >= 0
    assert spread[-1] <= 100 + 1e-9


def test_labels_that_are_apart_do_not_move():
    assert spread_labels([1, 5, 9], gap=2, low=0, high=10).tolist() == [1, 5, 9]
    assert spread_labels([1, 1, 9], gap=2, low=0, high=10).tolist() == [0, 2, 9]
