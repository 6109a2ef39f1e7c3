"""The commands `textlane export` and `textlane verify`: parsing and calls only."""

import argparse
import json
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from pipeline.config import JobConfig, load_job
from pipeline.contract.errors import ConfigError
from pipeline.contract.folder import write_text_atomically
from pipeline.contract.text_output import print_text
from pipeline.output_claim import claim_output, refuse_files_in_place_of
from pipeline.stage import run_stage
from pipeline.stored_output import stored_output

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXPORT_TEXT = "write the bundle: ONNX, INT8, tokenizer, limits, quality, hashes"
_SENSITIVITY_NAME = "sensitivity.json"
_EXPORT_EPILOG = """\
examples:
  textlane export --config job_configs/demo_cpu.yaml
  textlane export --config job_configs/demo_cpu.yaml --set export.max_accuracy_drop=0.005
  textlane export --config job_configs/demo_cpu.yaml --accept "0.4 points lost, twice as fast"
  textlane export --config job_configs/demo_cpu.yaml --dump-optimized outputs/graphs
  textlane export --config job_configs/demo_cpu.yaml --sensitivity

INT8 becomes the default model only if it is shown on the validation rows, with 95 % confidence,
to lose no more accuracy than export.max_accuracy_drop. What it loses by class and by length is
in the bundle's manifest.json under quality.gate. --accept overrides that for this bundle and
writes the reason and the date there; an export without it judges anew.

--sensitivity shows which layers cost accuracy in INT8 and proposes export.keep_float. It writes
sensitivity.json into the job's output_dir and leaves the bundle as it is.
"""
_VERIFY_TEXT = "repeat a bundle's checks on this machine, without torch"
_VERIFY_EPILOG = """\
examples:
  textlane verify outputs/demo_cpu/bundle
  textlane verify outputs/demo_cpu/bundle --shards outputs/demo_cpu/shards

One line is printed for each thing that was checked; what does not hold is named, and the exit
status is 2. With --shards the accuracies that the INT8 gate judged are measured again here.
"""


def add_export(commands: Commands, *, job: argparse.ArgumentParser) -> None:
    """Add `export` to the commands; ``job`` has the options of every stage."""
    command = commands.add_parser(
        "export",
        parents=[job],
        help=EXPORT_TEXT,
        description=f"Command that will {EXPORT_TEXT}.",
        epilog=_EXPORT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--force", action="store_true", help="do finished work again")
    command.add_argument(
        "--accept",
        metavar="REASON",
        help="make INT8 the default even if the gate does not pass it, on record with this reason",
    )
    command.add_argument(
        "--dump-optimized",
        type=Path,
        metavar="FOLDER",
        help="also write each graph as ONNX Runtime optimises it on this machine, to look at",
    )
    command.add_argument(
        "--sensitivity",
        action="store_true",
        help="instead of a bundle: measure what each layer costs in INT8",
    )
    command.set_defaults(call=_export)


def add_verify(commands: Commands) -> None:
    """Add `verify` to the commands."""
    command = commands.add_parser(
        "verify",
        help=_VERIFY_TEXT,
        description=f"Command that will {_VERIFY_TEXT}.",
        epilog=_VERIFY_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("bundle", type=Path, help="the bundle's folder")
    command.add_argument(
        "--shards", type=Path, metavar="FOLDER", help="shards of its job, to score it on again"
    )
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    command.set_defaults(call=_verify)


def _export(options: argparse.Namespace) -> None:
    if options.sensitivity:
        _refuse_with_sensitivity(options)
    job = load_job(options.config, options.sets).settings
    with claim_output(job.output_dir), stored_output(job):
        refuse_files_in_place_of(job, ["export"])
        if options.sensitivity:
            _explore_sensitivity(job)
            return
        # Imported when asked for: `--help` must not wait for torch.
        from pipeline.export.run import export

        run_stage(
            "export",
            lambda: export(
                job,
                force=options.force,
                accept=options.accept,
                dump_optimized=options.dump_optimized,
            ),
        )


def _refuse_with_sensitivity(options: argparse.Namespace) -> None:
    given = {
        "--accept": options.accept is not None,
        "--dump-optimized": options.dump_optimized is not None,
        "--force": options.force,
    }
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(
                f"it has no use beside {name}, which is about writing a bundle",
                place="--sensitivity",
                remedy="Run the command twice, once with each.",
            )


def _explore_sensitivity(job: JobConfig) -> None:
    from pipeline.export.sensitivity import explore_sensitivity

    report = explore_sensitivity(job, console=Console(stderr=True, soft_wrap=True))
    path = Path(job.output_dir) / _SENSITIVITY_NAME
    text = json.dumps(report.as_figures(), indent=2, ensure_ascii=False)
    write_text_atomically(path, text + "\n")
    print_text(report.as_text())


def _verify(options: argparse.Namespace) -> None:
    from pipeline.export.verify import verify

    print_text("\n".join(verify(options.bundle, shards_dir=options.shards)))
