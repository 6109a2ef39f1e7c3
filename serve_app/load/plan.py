"""What a command line asks for, checked before the first request is sent."""

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.contract.errors import ConfigError
from serve_app.load.arrivals import FloatArray, poisson_due_times, trace_due_times
from serve_app.load.mix import DEFAULT_MIX, parse_mix
from serve_app.load.target import Target, find_target
from serve_app.load.texts import TextSource, build_mix_source, read_source
from serve_app.service_address import read_key

DEFAULT_CONNECTIONS = 32
DEFAULT_COLUMN = "arrival_s"
STDOUT = "-"
_MAX_CONNECTIONS = 20_000
_MAX_SECONDS = 7 * 24 * 3600.0
_MAX_RATE = 100_000.0


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """One run: what to send where and when."""

    target: Target
    texts: TextSource
    texts_from: str
    """For people."""
    due_s: FloatArray | None
    """Seconds since the run began, of an open loop; None in a closed one."""
    arrivals: str
    """For people."""
    connections: int | None
    """Of a closed loop; None in an open one."""
    may_end_early: bool
    """Whether a trace has nothing more to send before the time is over."""
    warm_up_s: float
    seconds: float
    """Measured time, after the warm-up."""
    timeout_s: float
    is_impatient: bool
    seed: int
    api_key: str | None

    @property
    def end_s(self) -> float:
        """When the measured time ends, seconds since the run began."""
        return self.warm_up_s + self.seconds


def build_plan(options: argparse.Namespace) -> LoadPlan:
    """Return the run that the options ask for.

    Raises:
        ConfigError: an option cannot be used.
        DataError: a line of the texts or the trace cannot be used.
    """
    seed = int(_number(options.seed, "--seed", least=0, most=2**31, is_whole=True))
    seconds = _number(options.seconds, "--seconds", least=0.1, most=_MAX_SECONDS)
    warm_up_s = _number(options.warm_up_s, "--warm-up-s", least=0.0, most=_MAX_SECONDS)
    timeout_s = _number(options.timeout, "--timeout", least=0.001, most=3600.0)
    for file, option in ((options.json, "--json"), (options.html, "--html")):
        _check_out(file, option)
    target = find_target(options.url, is_mine=options.yes_this_is_mine)
    arrivals = _read_arrivals(options, warm_up_s + seconds, seed)
    if arrivals.due_s is not None and not np.any(arrivals.due_s >= warm_up_s):
        raise ConfigError(
            f"no request is due after the warm-up of {warm_up_s:g} s",
            place="--warm-up-s",
            remedy="Shorten the warm-up, or send more or for longer.",
        )
    texts, texts_from = _read_texts(options, seed)
    return LoadPlan(
        target=target,
        texts=texts,
        texts_from=texts_from,
        due_s=arrivals.due_s,
        arrivals=arrivals.text,
        connections=arrivals.connections,
        may_end_early=arrivals.may_end_early,
        warm_up_s=warm_up_s,
        seconds=seconds,
        timeout_s=timeout_s,
        is_impatient=options.impatient,
        seed=seed,
        api_key=read_key(options.api_key, place="--api-key"),
    )


@dataclass(frozen=True, kw_only=True)
class _Arrivals:
    text: str
    due_s: FloatArray | None = None
    connections: int | None = None
    may_end_early: bool = False


def _read_arrivals(options: argparse.Namespace, end_s: float, seed: int) -> _Arrivals:
    if options.impatient and (options.rate is not None or options.arrivals is not None):
        raise ConfigError(
            "goes with a closed loop only; an open one never waits",
            place="--impatient",
            remedy="Leave it out, or give --connections in place of the times.",
        )
    if options.arrivals is None:
        for name in ("column", "speed"):
            if getattr(options, name) is not None:
                raise ConfigError(
                    "goes with --arrivals only", place=f"--{name}", remedy="Add --arrivals FILE."
                )
    else:
        speed = _number(options.speed or "1", "--speed", least=1e-3, most=1e6)
        column = options.column or DEFAULT_COLUMN
        trace = trace_due_times(options.arrivals, column=column, speed=speed, seconds=end_s)
        text = f"open loop, {options.arrivals} at {speed:g} × its speed"
        return _Arrivals(text=text, due_s=trace.due_s, may_end_early=not trace.is_cut)
    if options.rate is not None:
        rate = _number(options.rate, "--rate", least=1e-3, most=_MAX_RATE)
        due_s = poisson_due_times(rate_per_s=rate, seconds=end_s, seed=seed)
        return _Arrivals(text=f"open loop, Poisson arrivals, {rate:g}/s", due_s=due_s)
    given = options.connections or str(DEFAULT_CONNECTIONS)
    most = _MAX_CONNECTIONS
    count = int(_number(given, "--connections", least=1, most=most, is_whole=True))
    text = f"closed loop, {count} connection{'s' if count > 1 else ''}"
    text += ", impatient" if options.impatient else ""
    return _Arrivals(text=text, connections=count)


def _read_texts(options: argparse.Namespace, seed: int) -> tuple[TextSource, str]:
    if options.texts is not None:
        source = read_source(options.texts)
        return source, f"{len(source.bodies[0]):,} texts of {options.texts}"
    mix = options.mix or DEFAULT_MIX
    return build_mix_source(parse_mix(mix), seed=seed), f"made-up texts, {mix} words"


def _number(text: str, option: str, *, least: float, most: float, is_whole: bool = False) -> float:
    try:
        value = float(int(text)) if is_whole else float(text)
    except (ValueError, OverflowError):
        value = math.nan
    if not least <= value <= most:
        kind = "whole number" if is_whole else "number"
        raise ConfigError(
            f"must be a {kind} from {least:g} to {most:,g}"
            if most < 1e6
            else f"must be a {kind}, {least:g} or more",
            place=option,
            value=text,
            remedy="`textlane load --help` has examples.",
        )
    return value


def _check_out(given: str | None, option: str) -> None:
    """Refuse a file that cannot be written before a minute is spent on measuring."""
    if given is None or (given == STDOUT and option == "--json"):
        return
    out, problem = Path(given), None
    if out.is_dir() or not out.name:
        problem = "is a folder, not a file"
    elif not out.parent.is_dir():
        problem = "its folder is not there"
    elif not os.access(out if out.exists() else out.parent, os.W_OK):
        problem = "may not be written to"
    if problem:
        raise ConfigError(
            problem,
            place=f"{option} {given}",
            remedy="Name a file in a folder that may be written to.",
        )
