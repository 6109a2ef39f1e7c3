"""The demo's table: figures of a finished job, read as export writes them."""

import io

import pytest
from rich.console import Console

from cluster.summary import render_summary

GRID = {"1x16": 1.0, "1x64": 2.04, "1x256": 9.0, "32x16": 30.0, "32x64": 94.0, "32x256": 500.0}


def summary(**quality):
    return {
        "rows": {"read": 9, "kept": 8, "rejected": 1, "not_sampled": 0},
        "splits": {"train": 6, "validation": 1, "test": 1},
        "padding": {"random": 0.5, "buckets": 0.2, "buckets_window": 0.1},
        "baseline": None,
        "torch_accuracy": 0.9,
        "quality": {
            "accuracy": {"model.onnx": 0.9, "model_int8.onnx": 0.89},
            "size_bytes": {"model.onnx": 91e6, "model_int8.onnx": 59e6},
            "latency_ms": {"model.onnx": GRID},
            **quality,
        },
        "default_model": "model.onnx",
        "traffic": {
            "p50_ms": 20.0,
            "p99_ms": 50.0,
            "num_connections": 8,
            "requests_per_s": 145.0,
            "num_correct": None,
            "num_requests": 100,
        },
        "report": "out/report.html",
        "bundle": "out/bundle",
    }


def render(values):
    written = io.StringIO()
    render_summary(values, Console(width=120, file=written))
    return [line for line in written.getvalue().splitlines() if "latency" in line]


@pytest.mark.parametrize(
    ("by_shape", "title", "figures"),
    [
        (GRID, "latency ONNX FP32, 64 tokens, batch 1 / batch 32", "2.0 ms / 94.0 ms"),
        ({"1x16": 1.0, "32x16": 30.0, "1x40": 3.0, "32x40": 50.0}, "40 tokens", "3.0 ms / 50.0 ms"),
        ({"1x24": 1.0, "32x24": 9.0}, "24 tokens", "1.0 ms / 9.0 ms"),
        ({"1x24": 1.0}, "24 tokens, batch 1 ", "1.0 ms"),
    ],
)
def test_latencies_are_shown_at_the_length_nearest_to_64_tokens(by_shape, title, figures):
    [line] = render(summary(latency_ms={"model.onnx": by_shape}))

    assert title in line
    assert figures in line


def test_every_model_file_has_its_line_by_name():
    names = {"model.onnx": GRID, "model_fp16.onnx": GRID, "model_int8.onnx": GRID}

    lines = render(summary(latency_ms=names))

    assert [("FP32" in line, "FP16" in line, "INT8" in line) for line in lines] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
