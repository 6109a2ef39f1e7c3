"""Chooses how the weights of the INT8 model are scaled, by measuring the four ways."""

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pipeline.contract.batching import pad_rows
from pipeline.contract.errors import ExportError
from pipeline.export.external_data import load_model, save_model
from pipeline.export.int8_graph import (
    PreparedGraph,
    QuantizedWeights,
    prepare_graph,
)
from pipeline.export.onnx_session import LogitsFunction, open_model
from pipeline.export.quantize import quantize_tensors
from pipeline.export.row_logits import TokenRow, mean_error, run_rows
from pipeline.export.row_scale import quantize_rows

Activations = Literal["tensor", "row"]
_WAYS = [(True, True), (True, False), (False, True), (False, False)]
_MAX_SLOWDOWN = 1.05
"""Chosen: what one scale for each column may cost against one for the matrix."""
_MIN_GAIN = 0.10
"""Chosen: what the eighth bit must take off the error to be worth its risk."""
_BATCH_ROWS = 16
_ROUNDS = 5
_RUNS = {1: 4, _BATCH_ROWS: 2}
"""Batch size → timed runs in a round."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way of scaling the weights and what it measured."""

    per_channel: bool
    """One scale for each column of a weight, or one for the matrix."""
    reduce_range: bool
    """7 bits, or 8."""
    mean_error: float
    """Mean absolute difference of the logits from FP32's."""
    latency_ms: Mapping[str, float]
    """Shape, such as ``16x32`` for 16 rows of 32 tokens → milliseconds of its fastest run."""
    rounds_ms: Sequence[float]
    """Geometric mean over the shapes of the fastest run in each round; the candidates took turns,
    so that equal positions are of nearly the same moment."""

    @property
    def words(self) -> str:
        """The way, for people."""
        scales = "column" if self.per_channel else "matrix"
        return f"{7 if self.reduce_range else 8}-bit weights, one scale for each {scales}"

    def as_figures(self) -> dict[str, Any]:
        """Return the candidate as it stands in the bundle's manifest."""
        return {
            "per_channel": self.per_channel,
            "reduce_range": self.reduce_range,
            # JSON knows no infinity.
            "mean_error": self.mean_error if math.isfinite(self.mean_error) else None,
            "latency_ms": dict(self.latency_ms),
        }


@dataclass(frozen=True, kw_only=True)
class _Probe:
    rows: Sequence[TokenRow]
    pad_token_id: int
    clock: Callable[[], float]


def write_int8(  # noqa: PLR0913 — what to quantise and what to measure with; two callers
    plain: Path,
    target: Path,
    *,
    keep_float: Sequence[str] | None,
    extra_keep_float: Sequence[str],
    activations: Activations,
    rows: Sequence[TokenRow],
    pad_token_id: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any] | None:
    """Write the INT8 model of an unfused FP32 graph, its weights scaled in the best way.

    Four ways are written and measured, one is kept: see :func:`choose`.

    Args:
        plain: FP32 graph with node names as the exporter gave them.
        target: file to write.
        keep_float: modules whose weights stay float; None where no names are known (a
            model.factory): the products that make the logits.
        extra_keep_float: further names, of the setting ``export.keep_float``.
        activations: what one scale of the activations is for: ``tensor`` the whole padded
            batch, ``row`` each token.
        rows: token ids of some texts, at least one; the errors are measured on them.
        pad_token_id: fills the padding.
        clock: seconds.

    Returns:
        What was chosen and measured, for the manifest; None if there is nothing to quantise.

    Raises:
        ExportError: a name matches no weight, there are no rows, no candidate has finite
            logits, or a written file is not as asked.
    """
    prepared = prepare_graph(plain, keep_float=keep_float, extra_keep_float=extra_keep_float)
    if not prepared.products:
        return None
    if not rows:
        raise ExportError(
            "INT8 is chosen by measuring it on validation rows, and there are none",
            remedy="Raise data.validation_share, or set export.int8 to false.",
        )
    probe = _Probe(rows=rows, pad_token_id=pad_token_id, clock=clock)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".int8-") as folder:
        paths = {way: Path(folder) / f"{index}.onnx" for index, way in enumerate(_WAYS)}
        weights = {way: _quantize(prepared, paths[way], activations, way) for way in _WAYS}
        candidates = _measure(open_model(plain), paths, probe)
        chosen = choose(candidates)
        way = (chosen.per_channel, chosen.reduce_range)
        save_model(load_model(paths[way]), target)
    return {
        "per_channel": chosen.per_channel,
        "reduce_range": chosen.reduce_range,
        "activations": activations,
        "int8": list(weights[way].int8),
        "kept_float": list(weights[way].kept_float),
        "candidates": [candidate.as_figures() for candidate in candidates],
        "sentence": explain(chosen, candidates),
    }


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the best of the four candidates.

    One scale for each column if that lowers the error, unless it takes over 5 % longer in every
    round: a busy machine must not make a worse model (one scale for the matrix gave MiniLM's
    logits four times the error, and single timings there were twofold apart). 7 bits
    unless the eighth takes more than 10 % off the error: on CPUs without VNNI instructions the
    16-bit sums of 8-bit products saturate (ONNX Runtime, "Quantize ONNX models", section on
    reduce_range), and the accuracy would not be the one measured here.

    Raises:
        ExportError: the logits of none are finite.
    """
    column, matrix = (_find(candidates, per_channel, True) for per_channel in (True, False))
    is_cheap = min(_slowdowns(column, matrix)) <= _MAX_SLOWDOWN
    best = column if column.mean_error < matrix.mean_error and is_cheap else matrix
    wide = _find(candidates, best.per_channel, False)
    if wide.mean_error < (1 - _MIN_GAIN) * best.mean_error:
        best = wide
    if best.mean_error == float("inf"):
        raise ExportError(
            "the logits of the INT8 model are not finite",
            remedy="Set export.int8 to false, or look for infinite weights.",
        )
    return best


def explain(chosen: Candidate, candidates: Sequence[Candidate]) -> str:
    """Return what was chosen and why, with the figures, for people."""
    other = _find(candidates, not chosen.per_channel, chosen.reduce_range)
    eight = _find(candidates, chosen.per_channel, False).mean_error
    seven = _find(candidates, chosen.per_channel, True).mean_error
    gain = 1 - eight / seven if seven else 0.0
    scales = "matrix" if chosen.per_channel else "column"
    risk = "; 8-bit sums saturate on CPUs without VNNI"
    bits = f"the eighth bit would take {gain:.1%} off the error, less than {_MIN_GAIN:.0%}{risk}"
    if not chosen.reduce_range:
        bits = f"the eighth bit takes {gain:.1%} off the error, more than {_MIN_GAIN:.0%}{risk}"
    return (
        f"INT8 has {chosen.words}: its logits are off by {chosen.mean_error:.2g} on average, "
        f"with one scale for each {scales} by {other.mean_error:.2g} in "
        f"{statistics.median(_slowdowns(other, chosen)):.2f} times its time; {bits}"
    )


def _quantize(
    prepared: PreparedGraph, path: Path, activations: Activations, way: tuple[bool, bool]
) -> QuantizedWeights:
    quantize = quantize_tensors if activations == "tensor" else quantize_rows
    return quantize(prepared, path, per_channel=way[0], reduce_range=way[1])


def _measure(
    reference: LogitsFunction, paths: Mapping[tuple[bool, bool], Path], probe: _Probe
) -> list[Candidate]:
    right = run_rows(reference, probe.rows, pad_token_id=probe.pad_token_id)
    runs = {way: open_model(path) for way, path in paths.items()}
    candidates = []
    for way, run in runs.items():
        logits = run_rows(run, probe.rows, pad_token_id=probe.pad_token_id)
        error = mean_error(logits, right)
        candidates.append(
            Candidate(
                per_channel=way[0],
                reduce_range=way[1],
                mean_error=error,
                latency_ms={},
                rounds_ms=(),
            )
        )
    return [
        replace(
            candidate,
            latency_ms={shape: round(min(ms[shape] for ms in rounds), 3) for shape in rounds[0]},
            rounds_ms=[_geometric_mean(ms.values()) for ms in rounds],
        )
        for candidate, rounds in zip(candidates, _time(list(runs.values()), probe), strict=True)
    ]


def _time(runs: Sequence[LogitsFunction], probe: _Probe) -> list[list[dict[str, float]]]:
    """Return for every model and round the fastest run's milliseconds by shape."""
    by_length = sorted(probe.rows, key=len)
    row = by_length[len(by_length) // 2]
    rounds: list[list[dict[str, float]]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        # One model after the other, as the threads of a session spin on for a moment.
        for run, found in zip(runs, rounds, strict=True):
            found.append({f"{n}x{len(row)}": _fastest(run, [row] * n, probe) for n in _RUNS})
    return rounds


def _fastest(run: LogitsFunction, rows: Sequence[TokenRow], probe: _Probe) -> float:
    inputs = pad_rows(rows, pad_value=probe.pad_token_id)
    run(*inputs)
    times_s = []
    for _ in range(_RUNS[len(rows)]):
        started = probe.clock()
        run(*inputs)
        times_s.append(probe.clock() - started)
    return min(times_s) * 1000


def _find(candidates: Sequence[Candidate], per_channel: bool, reduce_range: bool) -> Candidate:
    way = (per_channel, reduce_range)
    return next(item for item in candidates if (item.per_channel, item.reduce_range) == way)


def _slowdowns(candidate: Candidate, other: Candidate) -> list[float]:
    # A clock too coarse to tell anything must not decide either.
    pairs = zip(candidate.rounds_ms, other.rounds_ms, strict=True)
    return [mine / its if mine and its else 1.0 for mine, its in pairs]


def _geometric_mean(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.geometric_mean(found) if all(value > 0 for value in found) else 0.0
