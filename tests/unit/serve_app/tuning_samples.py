"""A model of known cost under a clock that it alone moves, and tunings made by hand."""

import numpy as np

from pipeline.contract.errors import InferenceError
from serve_app.cost_model import Cell, CostFit
from serve_app.machine import read_machine
from serve_app.tuning_choice import Bounds, LaneChoice, Lengths, Reasons, TuningChoice
from serve_app.tuning_file import TUNING_SCHEMA_VERSION, Tuning, UsedLengths


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class FakeModel:
    """Costs ``run + token · tokens + token_seq · tokens · seq`` seconds, over the threads."""

    def __init__(self, clock, *, run=0.001, token=1e-4, token_seq=1e-7, load=0.0, failing=()):
        self.clock = clock
        self.cost = (run, token, token_seq)
        self.load = load
        self.failing = failing
        self.ran = []

    def open(self, threads):
        self.clock.now += self.load

        def run(input_ids, mask):
            assert input_ids.shape == mask.shape
            assert input_ids.dtype == mask.dtype == np.int64
            if input_ids.shape in self.failing:
                raise InferenceError("the model failed on this text")
            self.ran.append((threads, *input_ids.shape))
            self.clock.now += self.seconds(threads, *input_ids.shape)

        return run

    def seconds(self, threads, batch, seq):
        run, token, token_seq = self.cost
        return (run + batch * seq * (token + token_seq * seq)) / threads


def cells_of(model, shapes, *, threads=1):
    return [
        Cell(threads=threads, batch=b, seq=s, seconds=model.seconds(threads, b, s), runs=1)
        for b, s in shapes
    ]


def fit_of(*, run=0.0, token=0.0, token_seq=0.0, threads=1):
    return CostFit(
        threads=threads,
        run_s=run,
        token_s=token,
        token_seq_s=token_seq,
        median_error=0.0,
        worst_error=0.0,
    )


def lengths_of(tokens, counts=None):
    shares = np.array(counts or [1] * len(tokens), dtype=np.float64)
    return Lengths(
        source="a test", tokens=np.array(tokens, dtype=np.int64), shares=shares / shares.sum()
    )


def bounds_of(*, cpus=2, max_seq_len=256, max_batch_rows=32, most_tokens=8192):
    return Bounds(
        cpus=cpus,
        max_seq_len=max_seq_len,
        max_batch_rows=max_batch_rows,
        most_tokens=most_tokens,
    )


def tuning_for(bundle, **choice):
    """Return a tuning of this machine that holds for a tiny bundle of 16 tokens."""
    lane = LaneChoice(texts_share=0.5, load_s=0.01, warm_up=((1, 3), (4, 5)))
    values = {
        "threads_per_replica": 1,
        "short_max_tokens": 5,
        "max_batch_tokens": 48,
        "max_batch_requests": 8,
        **choice,
    }
    return Tuning(
        schema_version=TUNING_SCHEMA_VERSION,
        bundle_version=bundle.version,
        model="model.onnx",
        machine=read_machine(),
        lengths=UsedLengths(source="a test", shortest=3, median=5, longest=16),
        choice=TuningChoice(
            texts_per_s=50.0,
            short=lane,
            long=lane,
            reasons=Reasons(**dict.fromkeys(Reasons.model_fields, "measured")),
            **values,
        ),
        fits=[fit_of(run=0.001)],
        cells=[Cell(threads=1, batch=1, seq=3, seconds=0.001, runs=3)],
        skipped=[(1, 32, 16)],
    )
