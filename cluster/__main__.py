"""The `textlane demo` command: parsing and calls only."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from cluster import COMMANDS
from cluster.demo import DemoOptions, run_demo
from pipeline.contract.errors import TextlaneError
from pipeline.contract.interrupts import heed_stop_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 done, 2 the user's mistake, 130 stopped by Ctrl-C, SIGTERM or a closed terminal.
    """
    options = _build_parser().parse_args(argv)
    console = Console(stderr=True, soft_wrap=True)
    heed_stop_signals()
    try:
        run_demo(
            DemoOptions(
                job_config=options.config,
                serve_config=options.serve_config,
                sets=tuple(options.sets),
                is_forced=options.force,
                num_requests=options.requests,
            )
        )
    except (TextlaneError, OSError, ImportError) as error:
        if options.debug:
            raise
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 2
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running, the same command goes on from here")
        return 130
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="textlane")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help=COMMANDS["demo"],
        description=f"Command that will {COMMANDS['demo']}; then stop all that was started.",
        epilog="example: textlane demo --config job_configs/demo_cpu.yaml --requests 500",
    )
    demo.add_argument("--config", type=Path, required=True, help="the job's YAML file")
    demo.add_argument(
        "--serve-config",
        type=Path,
        default=Path("serve_app/config.yaml"),
        help="the Ray Serve file (default: %(default)s)",
    )
    demo.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting of the job",
    )
    demo.add_argument("--force", action="store_true", help="do finished stages again")
    demo.add_argument(
        "--requests", type=_count, default=400, help="requests to send (default: %(default)s)"
    )
    demo.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number over 0, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
