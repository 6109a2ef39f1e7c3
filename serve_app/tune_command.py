"""The `textlane tune` command: measures a bundle on this machine and writes how to serve it."""

import argparse
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from pipeline.contract.bundle import Bundle
from pipeline.contract.errors import ConfigError
from pipeline.contract.interrupts import heed_stop_signals
from pipeline.contract.text_output import print_text
from serve_app import COMMANDS
from serve_app.cost_model import fit_cost
from serve_app.length_sources import lengths_of_shards, lengths_of_training, read_lengths
from serve_app.machine import read_machine
from serve_app.measuring import Measured, OpenRun, measure_cells, shape_grid, thread_counts
from serve_app.served import load_served_bundle
from serve_app.session import ScoringSession
from serve_app.tuning_choice import Bounds, Lengths, choose
from serve_app.tuning_file import (
    TUNING_SCHEMA_VERSION,
    Tuning,
    UsedLengths,
    as_json,
    tuning_path,
    write_tuning,
)
from serve_app.tuning_text import as_text

_DESCRIPTION = """\
Measure a bundle's model on this machine and write how to serve it best: threads of a
replica, which texts are short, how many padded tokens and texts a batch should have.

Run it on the machine that will serve, with nothing else running. The result is written to
BUNDLE.tuning.json beside the bundle, where `serve run` and `textlane predict` find it; they
pass it over, with a word why, on another machine or for another bundle or model file.
Whatever is set in the serving file wins.
"""
_EPILOG = """\
examples:
  textlane tune outputs/demo_cpu/bundle
  textlane tune outputs/demo_cpu/bundle --seconds 300
  textlane tune outputs/demo_cpu/bundle --model model.onnx --out onnx.tuning.json
  textlane tune outputs/demo_cpu/bundle --lengths tokens_of_my_requests.txt
  textlane tune outputs/demo_cpu/bundle --shards outputs/demo_cpu/shards --json

Choices are made for the lengths of the texts that training saw, or give those that your
users send: --lengths FILE has one number of tokens on each line. "- " in a table is a shape
that there was no time for; more --seconds measure more shapes, more often.
Exit status: 0 done, 2 a mistake in the command or its files, 130 Ctrl-C (nothing is written).
"""


def add_tune(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of a parser."""
    tune = commands.add_parser(
        "tune",
        help=COMMANDS["tune"],
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tune.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle's folder")
    tune.add_argument("--model", metavar="NAME", help="model file (default: the bundle's own)")
    tune.add_argument(
        "--seconds",
        default="60",
        metavar="S",
        help="about how long to measure (default: 60); a few shapes are run however short it is",
    )
    lengths = tune.add_mutually_exclusive_group()
    lengths.add_argument("--lengths", type=Path, metavar="FILE", help="one token count on a line")
    lengths.add_argument(
        "--shards", type=Path, metavar="FOLDER", help="lengths of a shards folder's test rows"
    )
    tune.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write (default: BUNDLE.tuning.json)"
    )
    tune.add_argument("--json", action="store_true", help="print the file's JSON for programs")
    tune.add_argument("--debug", action="store_true", help="show tracebacks")
    tune.set_defaults(call=run_tune)


def run_tune(
    options: argparse.Namespace,
    *,
    open_run: OpenRun | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Measure, choose, write and print; return the exit status.

    Args:
        options: of the command line.
        open_run: loads the model for so many threads; a fake in tests.
        clock: seconds, ascending.

    Raises:
        ConfigError: an option cannot be used.
        FolderError: (or a subtype) the bundle or the shards cannot be used.
        DataError: the lengths cannot be used.
    """
    seconds = _read_seconds(options.seconds)
    bundle = load_served_bundle(options.bundle, named_by="BUNDLE")
    model_path = bundle.model_path(options.model)
    out = _check_out(options.out, bundle)
    lengths = _read_lengths(options, bundle)
    heed_stop_signals()
    console = Console(stderr=True, soft_wrap=True)
    try:
        measured = _measure(
            open_run or _opener(bundle, model_path), bundle=bundle, seconds=seconds, clock=clock
        )
    except KeyboardInterrupt:
        console.print("stopped; nothing was written")
        raise
    tuning = _conclude(measured, bundle=bundle, model=model_path.name, lengths=lengths)
    write_tuning(out, tuning)
    print_text(as_json(tuning) if options.json else as_text(tuning))
    console.print(f"written: {out}", markup=False, highlight=False)
    return 0


def _measure(
    open_run: OpenRun, *, bundle: Bundle, seconds: float, clock: Callable[[], float]
) -> Measured:
    limits = bundle.manifest.limits
    columns = (TextColumn("measuring"), BarColumn(), TextColumn("{task.completed:.0f} s"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=seconds)
        return measure_cells(
            open_run,
            threads=thread_counts(read_machine().usable_cpus),
            shapes=shape_grid(max_seq_len=limits.max_seq_len, max_batch_rows=limits.max_batch_rows),
            seconds=seconds,
            clock=clock,
            on_time=lambda elapsed: progress.update(task, completed=min(elapsed, seconds)),
        )


def _conclude(measured: Measured, *, bundle: Bundle, model: str, lengths: Lengths) -> Tuning:
    machine, limits = read_machine(), bundle.manifest.limits
    counts = sorted({cell.threads for cell in measured.cells})
    fits = [fit_cost([cell for cell in measured.cells if cell.threads == n]) for n in counts]
    bounds = Bounds(
        cpus=machine.usable_cpus,
        max_seq_len=limits.max_seq_len,
        max_batch_rows=limits.max_batch_rows,
        most_tokens=max(cell.tokens for cell in measured.cells),
    )
    middle = int(np.searchsorted(np.cumsum(lengths.shares), 0.5))
    return Tuning.model_validate(
        {
            "schema_version": TUNING_SCHEMA_VERSION,
            "bundle_version": bundle.version,
            "model": model,
            "machine": machine,
            "lengths": UsedLengths(
                source=lengths.source,
                shortest=int(lengths.tokens[0]),
                median=int(lengths.tokens[middle]),
                longest=int(lengths.tokens[-1]),
            ),
            "choice": choose(fits, lengths=lengths, bounds=bounds),
            "fits": fits,
            "cells": measured.cells,
            "skipped": measured.skipped,
        }
    )


def _opener(bundle: Bundle, model_path: Path) -> OpenRun:
    return lambda threads: (
        ScoringSession(
            model_path,
            pad_token_id=bundle.manifest.pad_token_id,
            num_labels=len(bundle.manifest.labels),
            num_threads=threads,
        ).run
    )


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        raise ConfigError(
            "must be a number of seconds over 0",
            place="--seconds",
            value=text,
            remedy="Use --seconds 60; more measures more shapes, more often.",
        )
    return seconds


def _read_lengths(options: argparse.Namespace, bundle: Bundle) -> Lengths:
    max_seq_len = bundle.manifest.limits.max_seq_len
    if options.lengths:
        return read_lengths(options.lengths, max_seq_len=max_seq_len)
    if options.shards:
        return lengths_of_shards(options.shards, max_seq_len=max_seq_len)
    return lengths_of_training(bundle.manifest)


def _check_out(given: Path | None, bundle: Bundle) -> Path:
    """Return the file to write, or refuse it before a minute is spent on measuring."""
    out = (given or tuning_path(bundle.folder)).resolve()
    problem = None
    if out.is_relative_to(bundle.folder.resolve()):
        problem = "a bundle is sealed; nothing may be written into it"
    elif out.is_dir():
        problem = "is a folder, not a file"
    elif out.exists() and not out.is_file():
        problem = "is a device or pipe, not a file"
    elif not out.parent.is_dir():
        problem = "its folder is not there"
    elif not os.access(out.parent, os.W_OK):
        problem = "its folder may not be written to"
    if problem:
        raise ConfigError(
            problem, place=f"--out {out}", remedy="Name a file in a folder that may be written to."
        )
    return out
