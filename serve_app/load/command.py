"""The `textlane load` command."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from pipeline.contract.errors import ConfigError
from pipeline.contract.interrupts import heed_stop_signals
from pipeline.contract.text_output import print_text
from serve_app import COMMANDS
from serve_app.load.mix import DEFAULT_MIX
from serve_app.load.plan import (
    DEFAULT_COLUMN,
    DEFAULT_CONNECTIONS,
    STDOUT,
    LoadPlan,
    build_plan,
)

if TYPE_CHECKING:
    from serve_app.load.driver import Driver
    from serve_app.load.measure import Measured

_LEAST_MEASURED_S = 0.1
_DESCRIPTION = """\
Measure a running service: send texts, tell how long answers took, how many came, what failed.

A closed loop (--connections) finds the most that the service can do: on each connection the
next text is sent when the last was answered. An open loop (--rate, --arrivals) finds how long
users wait at a given load: texts are sent when they are due, whatever became of the earlier
ones. Latencies count from when a text was due to be sent, so waiting anywhere is in them.
"""
_EPILOG = f"""\
examples:
  textlane load http://127.0.0.1:8000
  textlane load http://127.0.0.1:8000 --rate 50 --seconds 60 --html load.html
  textlane load http://127.0.0.1:8000 --arrivals trace.csv --column arrival_s --speed 2
  textlane load http://127.0.0.1:8000 --texts my_texts.txt --json - | python -m json.tool
  textlane load http://127.0.0.1:8000 --mix 70:5-20,30:200-400 --api-key @key.txt

A mix is share:words from-to of made-up English texts, {DEFAULT_MIX} unless set. A URL without
a path means /v1/predict. Hosts other than this machine and private networks need
--yes-this-is-mine. A file for --texts has one text on each line or, named .jsonl, an object
with a field text on each line; a field class makes percentiles of each kind of text.
Exit status: 0 done, 1 not one text was answered, 2 a mistake in the command or its files or
the service cannot be reached, 130 stopped by Ctrl-C (what was measured so far is shown).
"""


def add_load(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of a parser."""
    load = commands.add_parser(
        "load",
        help=COMMANDS["load"],
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = load.add_argument
    add("url", metavar="URL", help="the service, such as http://127.0.0.1:8000")
    _add_loop(load)
    texts = load.add_mutually_exclusive_group()
    texts.add_argument("--texts", type=Path, metavar="FILE", help="texts to send, shuffled")
    texts.add_argument("--mix", metavar="MIX", help="made-up texts: share:words from-to, …")
    add("--seconds", default="20", metavar="S", help="measured time (default: 20)")
    add("--warm-up-s", default="2", metavar="S", help="sent before, not counted (default: 2)")
    add("--timeout", default="30", metavar="S", help="give an answer up after (default: 30)")
    add("--seed", default="0", metavar="N", help="of texts and arrivals (default: 0)")
    add("--api-key", metavar="KEY", help="sent as X-API-Key; @FILE reads it from a file")
    add("--json", metavar="FILE", help="also write all figures as JSON; - is standard output")
    add("--html", metavar="FILE", help="also write a page with pictures")
    add("--yes-this-is-mine", action="store_true", help="load a host that is not near")
    add("--debug", action="store_true", help="show tracebacks")
    load.set_defaults(call=run_load)


def _add_loop(load: argparse.ArgumentParser) -> None:
    loop = load.add_mutually_exclusive_group()
    loop.add_argument(
        "--connections",
        metavar="N",
        help=f"closed loop over so many connections (default: {DEFAULT_CONNECTIONS})",
    )
    loop.add_argument("--rate", metavar="R", help="open loop, R texts/s at random (Poisson)")
    loop.add_argument(
        "--arrivals", type=Path, metavar="FILE", help="open loop, the times of a recorded CSV file"
    )
    load.add_argument(
        "--impatient",
        action="store_true",
        help="in a closed loop, send again at once where the service says Retry-After",
    )
    load.add_argument(
        "--column", metavar="NAME", help=f"its column of seconds (default: {DEFAULT_COLUMN})"
    )
    load.add_argument("--speed", metavar="X", help="replay it so many times as fast (default: 1)")


def run_load(options: argparse.Namespace) -> int:
    """Measure, print and write; return the exit status.

    Raises:
        ConfigError: an option cannot be used or the service cannot be reached.
        DataError: a line of the texts or the trace cannot be used.
    """
    heed_stop_signals()
    plan = build_plan(options)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    measured = _measure(plan)
    if measured is None or measured.ended_s < plan.warm_up_s + _LEAST_MEASURED_S:
        Console(stderr=True).print("stopped before anything was measured; nothing is written")
        return 130
    return _tell(options, plan, measured, started_at=started_at)


def _measure(plan: LoadPlan) -> "Measured | None":
    try:
        from serve_app.load.measure import measure
    except ImportError as error:
        raise ConfigError(
            f"a package is missing: {error}",
            place="textlane load",
            remedy="Install textlane[serve].",
        ) from None
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"))
    console = Console(stderr=True)
    # Its own thread would take the interpreter away from the requests ten times a second.
    progress = Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=False,
        disable=not console.is_terminal,
    )
    with progress:
        return measure(plan, on_tick=_show_on(progress, plan))


def _show_on(progress: Progress, plan: LoadPlan) -> "Callable[[Driver], None]":
    task = progress.add_task("warming up", total=plan.end_s, figures="")

    def show(driver: "Driver") -> None:
        if progress.disable:
            return
        now, waiting = driver.now_s, len(driver.unanswered_due_s)
        phase = "warming up" if now < plan.warm_up_s else "measuring"
        description = phase if now < plan.end_s else "waiting for the last answers"
        failed = sum(sample.failure is not None for sample in driver.samples[-1000:])
        figures = f"{now:.0f} of {plan.end_s:.0f} s, {len(driver.samples):,} done, {waiting:,} "
        figures += f"under way, {failed} of the last 1,000 failed"
        progress.update(
            task, completed=min(now, plan.end_s), description=description, figures=figures
        )
        progress.refresh()

    return show


def _tell(
    options: argparse.Namespace, plan: LoadPlan, measured: "Measured", *, started_at: str
) -> int:
    from serve_app.load.page import write_page
    from serve_app.load.report import build_report, measured_window
    from serve_app.load.summary import measured_samples
    from serve_app.load.table import print_report

    report = build_report(plan, measured, started_at=started_at)
    is_json_shown = options.json == STDOUT
    print_report(report, console=Console(stderr=is_json_shown))
    if is_json_shown:
        print_text(report.model_dump_json(indent=2))
    elif options.json:
        Path(options.json).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    if options.html:
        from_s, to_s = measured_window(plan, measured)
        samples = measured_samples(measured.samples, from_s=from_s, to_s=to_s)
        write_page(Path(options.html), report, samples=samples, class_names=plan.texts.classes)
    written = [out for out in (options.json, options.html) if out and out != STDOUT]
    if written:
        Console(stderr=True).print(f"written: {', '.join(written)}", markup=False, soft_wrap=True)
    if measured.is_stopped:
        return 130
    return 0 if report.summary.num_answered else 1
