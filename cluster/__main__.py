"""The commands `textlane serve`, `textlane demo` and `textlane doctor`: parsing and calls only."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from cluster import COMMANDS
from cluster.doctor.command import add_doctor
from cluster.serve_command import run_serve
from cluster.serve_config import ServeOptions, default_config
from pipeline.contract.errors import TextlaneError
from pipeline.contract.interrupts import heed_stop_signals
from pipeline.contract.text_output import any_output


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 done, 1 doctor found a symptom, 2 the user's mistake, 130 stopped by Ctrl-C, SIGTERM or a
    closed terminal. A server is done when it is stopped after it was ready.
    """
    console = Console(stderr=True, soft_wrap=True)
    options = argparse.Namespace(debug=False)
    heed_stop_signals()
    try:
        with any_output():
            options = _build_parser().parse_args(argv)
            status = options.call(options, console)
    except (TextlaneError, OSError, ImportError) as error:
        if options.debug:
            raise
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 2
    except KeyboardInterrupt:
        console.print(options.stopped)
        return 130
    return int(status)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="textlane")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_demo(commands)
    add_doctor(commands, summary=COMMANDS["doctor"])
    return parser


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser(
        "serve",
        help=COMMANDS["serve"],
        description="Serve a bundle on this machine with Ray Serve, behind HAProxy, until Ctrl-C.",
        epilog="example: textlane serve --bundle outputs/demo_cpu/bundle --port 8080",
    )
    serve.add_argument(
        "--bundle", help="the bundle's folder (default: what the environment or the file names)"
    )
    serve.add_argument(
        "--config", type=Path, help="the Ray Serve file (default: that of serve_app)"
    )
    serve.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting of serving, such as short_replicas=2; may be repeated",
    )
    serve.add_argument(
        "--host", help="address that takes requests; 0.0.0.0: all (default: the file's, 127.0.0.1)"
    )
    serve.add_argument("--port", type=_port, help="its port; 0: a free one (default: the file's)")
    serve.add_argument(
        "--grpc-port",
        type=_port,
        help="answer by gRPC too, at this port; 0: a free one (default: the file's, if any)",
    )
    serve.add_argument(
        "--dashboard-port", type=_port, help="Ray's dashboard (default: 8265 or a free one)"
    )
    serve.add_argument(
        "--no-haproxy",
        dest="with_haproxy",
        action="store_false",
        help="take requests with Ray Serve's own proxy, which is slower",
    )
    serve.add_argument("--debug", action="store_true", help="show tracebacks")
    serve.set_defaults(call=_serve, stopped="stopped before it was ready; nothing is left running")


def _serve(options: argparse.Namespace, console: Console) -> int:
    run_serve(
        ServeOptions(
            config=options.config or default_config(),
            bundle=options.bundle,
            sets=tuple(options.sets),
            host=options.host,
            port=options.port,
            grpc_port=options.grpc_port,
            dashboard_port=options.dashboard_port,
            with_haproxy=options.with_haproxy,
        ),
        console,
    )
    return 0


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
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
    demo.set_defaults(
        call=_demo, stopped="stopped; nothing is left running, the same command goes on from here"
    )


def _demo(options: argparse.Namespace, console: Console) -> int:
    # Imported when asked for: it reads shards, and a serving install has no pyarrow.
    from cluster.demo import DemoOptions, run_demo

    del console  # It shows its table on standard output and its stages in its own way.
    run_demo(
        DemoOptions(
            job_config=options.config,
            serve_config=options.serve_config,
            sets=tuple(options.sets),
            is_forced=options.force,
            num_requests=options.requests,
        )
    )
    return 0


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 65535, got {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number over 0, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
