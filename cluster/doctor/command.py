"""The command `textlane doctor`: its options, and what it prints."""

import argparse
import math
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from cluster.doctor.diagnosis import diagnose
from cluster.doctor.examination import DoctorOptions, examine
from cluster.doctor.report import build_runbook, format_findings, format_json
from pipeline.contract.text_output import print_text

_DESCRIPTION = """\
Name which known symptom is present, with its figures, its threshold and the command that cures it.

Without --checkpoint or --bundle it looks at the service of this machine for 20 seconds: rates are
those of that time, so let the load run meanwhile. Nothing is changed."""
_EPILOG = """\
examples:
  textlane doctor
  textlane doctor --url http://10.0.0.5:8000 --metrics http://10.0.0.5:8080/metrics
  textlane doctor --checkpoint outputs/demo_cpu/checkpoint
  textlane doctor --bundle outputs/demo_cpu/bundle
  textlane doctor --json | python -m json.tool

Ray passes metrics on every 10 s, so fewer seconds may show nothing; a leak needs minutes. The
metrics are those that Ray's service discovery file names, looked for in the folder for temporary
files. docs/runbook.md lists all symptoms.
Exit status: 0 healthy, 1 a symptom is present, 2 it could not look, 130 stopped by Ctrl-C."""

_LONGEST_PATH = 4096
_LONGEST_KEY = 4096


def add_doctor(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, summary: str
) -> None:
    """Add the command; ``call`` of its options returns the exit status."""
    doctor = commands.add_parser(
        "doctor",
        help=summary,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument("--url", type=_url, help="where the service answers (default: found)")
    doctor.add_argument(
        "--metrics",
        type=_url,
        action="append",
        default=[],
        metavar="URL",
        help="metrics of a node; may be repeated (default: found)",
    )
    doctor.add_argument(
        "--discovery", type=_path, metavar="FILE", help="Ray's service discovery file"
    )
    doctor.add_argument(
        "--seconds",
        type=_seconds,
        default=20.0,
        metavar="S",
        help="looked at so long (default: 20)",
    )
    doctor.add_argument(
        "--api-key",
        type=_key,
        metavar="KEY",
        help="for /v1/model, where the service asks; @FILE reads it from a file",
    )
    doctor.add_argument("--checkpoint", type=_path, metavar="FOLDER", help="a training's folder")
    doctor.add_argument("--bundle", type=_path, metavar="FOLDER", help="a bundle's folder")
    doctor.add_argument("--json", action="store_true", help="print JSON, with all observations")
    doctor.add_argument(
        "--runbook", action="store_true", help="print the table of all symptoms and look at nothing"
    )
    doctor.add_argument("--debug", action="store_true", help="show tracebacks")
    doctor.set_defaults(call=run_doctor, stopped="stopped; nothing was changed")


def run_doctor(options: argparse.Namespace, console: Console) -> int:
    """Look, print, and return the exit status.

    Raises:
        TextlaneError: it could not look.
    """
    del console  # What it finds goes to standard output.
    if options.runbook:
        print_text(build_runbook())
        return 0
    seen = examine(
        DoctorOptions(
            url=options.url,
            metrics=tuple(options.metrics),
            discovery=options.discovery,
            seconds=options.seconds,
            api_key=options.api_key,
            checkpoint=options.checkpoint,
            bundle=options.bundle,
        )
    )
    findings = diagnose(seen)
    print_text((format_json if options.json else format_findings)(seen, findings))
    return 1 if findings else 0


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not text.isprintable() or " " in text or len(text) > 2000:
        raise argparse.ArgumentTypeError(
            f"must be a URL such as http://127.0.0.1:8000, got {text[:200]!r}"
        )
    return text


def _path(text: str) -> Path:
    # Control characters would reach the terminal in a message.
    if not text.strip() or len(text) > _LONGEST_PATH or any(ord(sign) < 32 for sign in text):
        raise argparse.ArgumentTypeError(
            f"must be a path of 1 to {_LONGEST_PATH} characters, none of them a control one, got "
            f"{text[:200]!r}"
        )
    return Path(text)


def _key(text: str) -> str:
    if text.startswith("@"):
        try:
            with _path(text[1:]).open("rb") as file:
                # No more than shows that it is too long: a device may have no end.
                text = file.read(2 * _LONGEST_KEY).decode("utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise argparse.ArgumentTypeError(
                f"the file of the key cannot be read: {error}"
            ) from None
    # The key itself is in no message: it is a secret.
    if not text or not text.isascii() or not text.isprintable() or len(text) > _LONGEST_KEY:
        raise argparse.ArgumentTypeError(f"must be 1 to {_LONGEST_KEY} printable ASCII characters")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1.0 <= value <= 3600.0:
        raise argparse.ArgumentTypeError(f"must be from 1 to 3600, got {text[:200]!r}")
    return value
