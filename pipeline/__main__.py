"""The `textlane` command: parsing and calls only."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from pipeline.config import JobConfig, load_job
from pipeline.contract.errors import TextlaneError
from pipeline.contract.settings import Loaded, describe_settings
from pipeline.stage import StageResult

Stage = Callable[..., StageResult]

_EPILOG = """\
examples:
  textlane run --config job_configs/demo_cpu.yaml
  textlane train --config job_configs/demo_cpu.yaml --set train.epochs=2
  TEXTLANE_TRAIN__BASE_LR=1e-4 textlane config --config job_configs/demo_cpu.yaml
  textlane predict --bundle outputs/demo_cpu/bundle "A film to see twice."
  textlane demo --config job_configs/demo_cpu.yaml

A value on the command line beats one in the environment, which beats the file.
`textlane COMMAND --help` explains one command.
"""
_STAGE_HELP = {
    "prepare": "read labelled text, clean, split, tokenise and bucket it into shards",
    "train": "train on the shards; goes on from the last checkpoint",
    "evaluate": "measure the checkpoint on the test rows and write report.html",
    "export": "write the bundle: ONNX, INT8, tokenizer, limits, quality, hashes",
    "run": "prepare, train, evaluate and export; finished stages are not done again",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 2 the user's mistake, 130 Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    console = Console(stderr=True, soft_wrap=True)
    others = {entry.name: entry for entry in entry_points(group="textlane.commands")}
    if arguments and arguments[0] in others:
        return int(others[arguments[0]].load()(arguments))
    options = _build_parser(others).parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop_like_interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Ignored under nohup.
        signal.signal(signal.SIGHUP, _stop_like_interrupt)
    try:
        options.call(options)
    except (TextlaneError, OSError, ImportError) as error:
        if options.debug:
            raise
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 2
    except KeyboardInterrupt:
        console.print("stopped; finished stages are kept, the same command goes on from there")
        return 130
    return 0


def _stop_like_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    # A plain SIGTERM would skip every `finally` and leave Ray's processes running.
    raise KeyboardInterrupt


def _build_parser(others: dict[str, EntryPoint]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="textlane",
        description="Train, verify and serve variable-length text models on Ray.",
        epilog=f"{_EPILOG}Also installed: {', '.join(sorted(others)) or 'no other commands'}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    job = _job_options()
    for name, text in _STAGE_HELP.items():
        command = commands.add_parser(name, parents=[job], help=text, description=text)
        command.add_argument("--force", action="store_true", help="do finished work again")
        command.set_defaults(call=_run_stages)
    text = "print every setting, its value and where it came from"
    command = commands.add_parser("config", parents=[job], help=text, description=text)
    command.add_argument("--json", action="store_true", help="print JSON for programs")
    command.set_defaults(call=_print_config)
    text = "repeat a bundle's checks on this machine, without torch"
    command = commands.add_parser("verify", help=text, description=text)
    command.add_argument("bundle", type=Path, help="the bundle's folder")
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    command.set_defaults(call=_verify)
    return parser


def _job_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--config", type=Path, required=True, help="the job's YAML file")
    options.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting, such as train.epochs=2; may be repeated",
    )
    options.add_argument("--debug", action="store_true", help="show tracebacks")
    return options


def _load_stage(name: str) -> Stage:
    # Imported when asked for: `config` and `verify` must not wait for torch.
    if name == "prepare":
        from pipeline.data.prepare import prepare

        return prepare
    if name == "train":
        from pipeline.train.run import train

        return train
    if name == "evaluate":
        from pipeline.evaluate.run import evaluate

        return evaluate
    from pipeline.export.run import export

    return export


def _run_stages(options: argparse.Namespace) -> None:
    job = load_job(options.config, options.sets).settings
    stages = ["prepare", "train", "evaluate", "export"]
    for name in stages if options.command == "run" else [options.command]:
        _run_stage(name, job, force=options.force)


def _run_stage(name: str, job: JobConfig, *, force: bool) -> None:
    console = Console(stderr=True, soft_wrap=True)
    started = time.monotonic()
    result = _load_stage(name)(job, force=force)
    took = "already done" if result.is_reused else f"{time.monotonic() - started:.1f} s"
    console.print(f"[bold]{name}[/bold] ({took}): ", end="")
    console.print(f"{result.summary} → {result.folder}", markup=False, highlight=False)


def _print_config(options: argparse.Namespace) -> None:
    loaded: Loaded[JobConfig] = load_job(options.config, options.sets)
    rows = describe_settings(loaded)
    if options.json:
        values = {key: {"value": value, "from": origin} for key, value, origin in rows}
        print(json.dumps(values, indent=2, ensure_ascii=False))
        return
    shown = [(key, json.dumps(value, ensure_ascii=False), origin) for key, value, origin in rows]
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    for key, text, origin in shown:
        print(f"{key:<{widths[0]}}  {text:<{widths[1]}}  {origin}")


def _verify(options: argparse.Namespace) -> None:
    from pipeline.export.verify import verify

    for line in verify(options.bundle):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
