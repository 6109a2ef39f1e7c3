"""The `textlane` command: parsing and calls only."""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from rich.console import Console

from pipeline.config import JobConfig, check_factory, check_pretrained, load_job
from pipeline.config.explain import as_json, as_text, explain_settings
from pipeline.contract.errors import ConfigError, TextlaneError
from pipeline.contract.interrupts import heed_stop_signals
from pipeline.contract.settings import Loaded, describe_settings
from pipeline.contract.text_output import any_output, print_text
from pipeline.export_commands import add_export, add_verify
from pipeline.output_claim import claim_output, refuse_files_in_place_of
from pipeline.stage import StageResult, run_stage
from pipeline.stored_output import stored_output

Stage = Callable[..., StageResult]

_EPILOG = """\
examples:
  textlane run --config job_configs/demo_cpu.yaml
  textlane train --config job_configs/demo_cpu.yaml --set train.epochs=2
  TEXTLANE_TRAIN__BASE_LR=1e-4 textlane config --config job_configs/demo_cpu.yaml
  textlane config --explain
  textlane inspect outputs/demo_cpu/shards
  textlane predict --bundle outputs/demo_cpu/bundle "A film to see twice."
  textlane serve --bundle outputs/demo_cpu/bundle
  textlane load http://127.0.0.1:8000 --rate 20
  textlane release start outputs/reviews_v2/bundle
  textlane demo --config job_configs/demo_cpu.yaml

A value on the command line beats one in the environment, which beats the file.
`textlane COMMAND --help` explains one command.
"""
_INSPECT_HELP = """\
Show what a shards folder holds: rows read, kept and rejected by reason; rows, lengths and
labels of each split; the buckets and what padding costs; the longest and shortest rows.

Texts and names are shown with every invisible character as an escape such as \\x1b.
"""
_INSPECT_EPILOG = """\
examples:
  textlane inspect outputs/demo_cpu/shards
  textlane inspect outputs/demo_cpu/shards --picture lengths.svg
  textlane inspect outputs/demo_cpu/shards --json | python -m json.tool

A percentile p is the length that p % of the rows do not exceed. "padding to edge" fills each
row to its bucket's upper edge; "in training" is what rows get in batches of like rows.
A row "17.2" is the third window of the text in row 17.
"""
_STAGE_HELP = {
    "prepare": "read labelled text, clean, split, tokenise and bucket it into shards",
    "train": "train on the shards; goes on from the last checkpoint",
    "evaluate": "measure the checkpoint on the test rows and write report.html",
    "run": "prepare, train, evaluate and export; finished stages are not done again",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 done, 2 the user's mistake, 130 stopped by Ctrl-C, SIGTERM or a closed terminal.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    console = Console(stderr=True, soft_wrap=True)
    others = {entry.name: entry for entry in entry_points(group="textlane.commands")}
    if arguments and arguments[0] in others:
        return int(others[arguments[0]].load()(arguments))
    options = argparse.Namespace(debug=False)
    try:
        with any_output():
            options = _build_parser(others).parse_args(arguments)
            heed_stop_signals()
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


def _build_parser(others: dict[str, EntryPoint]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="textlane",
        description="Train, verify and serve variable-length text models on Ray.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    job = _job_options()
    for name, text in _STAGE_HELP.items():
        if name == "run":
            add_export(commands, job=job)
        command = commands.add_parser(name, parents=[job], help=text, description=text)
        command.add_argument("--force", action="store_true", help="do finished work again")
        command.set_defaults(call=_run_stages)
    text = "print every setting, its value and where it came from; --explain: what it means"
    command = commands.add_parser(
        "config", parents=[_job_options(is_required=False)], help=text, description=text
    )
    command.add_argument(
        "--explain",
        action="store_true",
        help="print what each setting means, what it may be and its default; needs no --config",
    )
    command.add_argument("--json", action="store_true", help="print JSON for programs")
    command.set_defaults(call=_print_config)
    add_verify(commands)
    _add_inspect(commands)
    for name, entry in sorted(others.items()):
        # Listed only: main() hands their arguments on before anything is parsed here.
        commands.add_parser(name, help=_help_line(entry))
    return parser


def _help_line(entry: EntryPoint) -> str:
    # The package alone is imported, which loads nothing; the command itself would load much.
    package = import_module(entry.module.rpartition(".")[0])
    return str(getattr(package, "COMMANDS", {}).get(entry.name, "another package's command"))


def _add_inspect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "inspect",
        help="show what a shards folder holds: rows, labels, lengths, buckets, padding",
        description=_INSPECT_HELP,
        epilog=_INSPECT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("shards", type=Path, metavar="SHARDS", help="the shards' folder")
    command.add_argument("--json", action="store_true", help="print JSON for programs")
    command.add_argument("--picture", type=Path, metavar="FILE.svg", help="also draw it as SVG")
    command.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="trust the files; do not read them all to check their sha256",
    )
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    command.set_defaults(call=_inspect)


def _job_options(*, is_required: bool = True) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--config", type=Path, required=is_required, help="the job's YAML file")
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
    chosen = stages if options.command == "run" else [options.command]
    with claim_output(job.output_dir), stored_output(job):
        refuse_files_in_place_of(job, chosen)
        if {"prepare", "train"} & set(chosen):
            check_pretrained(job)
            check_factory(job)
        for name in chosen:
            stage = partial(_load_stage(name), job, force=options.force)
            run_stage(name, stage)


def _print_config(options: argparse.Namespace) -> None:
    if options.explain:
        _explain_config(options)
        return
    if options.config is None:
        raise ConfigError(
            "there is no job to show",
            place="--config",
            remedy="Name its YAML file, or add --explain to read what every setting means.",
        )
    loaded: Loaded[JobConfig] = load_job(options.config, options.sets)
    rows = describe_settings(loaded)
    if options.json:
        values = {key: {"value": value, "from": origin} for key, value, origin in rows}
        print_text(json.dumps(values, indent=2, ensure_ascii=False))
        return
    shown = [(key, json.dumps(value, ensure_ascii=False), origin) for key, value, origin in rows]
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    lines = (f"{key:<{widths[0]}}  {text:<{widths[1]}}  {origin}" for key, text, origin in shown)
    print_text("\n".join(lines))


def _explain_config(options: argparse.Namespace) -> None:
    if options.sets and options.config is None:
        raise ConfigError(
            "there is no job to set this in", place="--set", remedy="Add --config FILE."
        )
    loaded = load_job(options.config, options.sets) if options.config else None
    write = as_json if options.json else as_text
    print_text(write(explain_settings(JobConfig), loaded))


def _inspect(options: argparse.Namespace) -> None:
    from pipeline.data import inspection_text
    from pipeline.data.inspection import inspect_shards

    inspection = inspect_shards(options.shards, verify=options.verify)
    if options.picture:
        from pipeline.data.picture import draw_inspection

        inspection = draw_inspection(inspection, options.picture)
    if options.json:
        print_text(inspection_text.as_json(inspection))
        return
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else None
    print_text(inspection_text.as_tables(inspection, width=width))


if __name__ == "__main__":
    sys.exit(main())
