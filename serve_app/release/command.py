"""The `textlane release` command: a release from a terminal."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipeline.contract.errors import ConfigError
from pipeline.contract.interrupts import heed_stop_signals
from pipeline.contract.text_output import print_text
from serve_app import COMMANDS
from serve_app.release.config import (
    DEFAULT_URL,
    KEY_VARIABLE,
    URL_VARIABLE,
    find_desk_key,
    find_desk_url,
)
from serve_app.release.plan import load_plan, plan_to_mapping

if TYPE_CHECKING:
    from serve_app.release.desk_client import DeskClient
    from serve_app.release.status import ReleaseHistory, ReleaseStatus

_MAX_PATH_CHARS = 4096
_DESCRIPTION = """\
Release a new bundle beside the one that is served: it gets a share of the traffic, is watched,
and gets more, or loses it by itself. serve_app/release/README.md tells what is checked.
"""
_EPILOG = f"""\
examples:
  textlane release start outputs/reviews_v2/bundle
  textlane release start /models/v2/bundle --plan serve_app/release/plan.yaml
  textlane release status --watch
  textlane release abort                       # all traffic back to the stable version, now
  textlane release history
  textlane release status --url http://10.0.0.7:8002 --key @desk.key --json

The desk is found at --url, else {URL_VARIABLE}, else {DEFAULT_URL}; the key is
--key, else {KEY_VARIABLE}.
Exit status: 0 done, 1 the release that was watched lost its traffic, 2 a mistake in the command,
a refusal or no desk, 130 stopped by Ctrl-C (the release goes on).
"""
_HELP = {
    "start": "give a candidate bundle its first share of the traffic",
    "status": "show the release that is under way, or the last one",
    "pause": "hold the weight where it is; checks go on and hard limits still roll back",
    "resume": "go on after a pause",
    "promote": "make the candidate stable now, whatever the checks say",
    "abort": "give all traffic back to the stable version now",
    "history": "list finished releases and why each ended",
}


def add_release(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of a parser."""
    release = commands.add_parser(
        "release",
        help=COMMANDS["release"],
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = release.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action, text in _HELP.items():
        one = actions.add_parser(action, help=text, description=text[0].upper() + text[1:] + ".")
        if action == "start":
            one.add_argument("bundle", metavar="BUNDLE", help="folder, as the cluster sees it")
            one.add_argument("--plan", type=Path, metavar="FILE", help="YAML; else the default")
        if action in ("start", "status"):
            one.add_argument(
                "--watch", action="store_true", help="show it anew until the release is over"
            )
        one.add_argument("--json", action="store_true", help="print all of it as JSON")
        one.add_argument("--url", metavar="URL", help=f"the desk (default: {DEFAULT_URL})")
        one.add_argument("--key", metavar="KEY", help="the desk's key; @FILE reads it from a file")
        one.add_argument("--debug", action="store_true", help="show tracebacks")
        one.set_defaults(call=run_release, watch=False)


def run_release(options: argparse.Namespace) -> int:
    """Do one thing and return the exit status.

    Raises:
        ConfigError: an option or the plan cannot be used, or no desk is there.
        RequestError: the desk refuses it.
        ServiceError: the desk cannot do it.
    """
    heed_stop_signals()
    if options.watch and options.json:
        raise ConfigError("one goes without the other", place="--watch --json")
    url, key = find_desk_url(options.url), find_desk_key(options.key)
    asked: Mapping[str, Any] = {}
    if options.action == "start":
        asked = {"bundle": _find_bundle(options.bundle), "plan": _read_plan(options.plan)}
    try:
        from serve_app.release.desk_client import DeskClient
        from serve_app.release.watching import watch
    except ImportError as error:
        raise ConfigError(
            f"a package is missing: {error}",
            place="textlane release",
            remedy="Install textlane[serve].",
        ) from None
    with DeskClient(url, key=key) as desk:
        if options.action == "history":
            return _tell_history(desk.history(), is_json=options.json)
        status = _ask(desk, options.action, asked)
        if options.watch:
            return watch(desk, status, console=Console())
        return _tell(status, is_json=options.json)


def _ask(desk: "DeskClient", action: str, asked: Mapping[str, Any]) -> "ReleaseStatus":
    if action == "status":
        return desk.status()
    return desk.start(asked["bundle"], plan=asked["plan"]) if asked else desk.act(action)


def _tell(status: "ReleaseStatus", *, is_json: bool) -> int:
    from serve_app.release.status_table import build_status

    if is_json:
        print_text(status.model_dump_json(indent=2))
    else:
        Console().print(build_status(status))
    return 0


def _tell_history(past: "ReleaseHistory", *, is_json: bool) -> int:
    from serve_app.release.status_table import print_history

    if is_json:
        print_text(past.model_dump_json(indent=2))
    else:
        print_history(past, console=Console())
    return 0


def _find_bundle(given: str) -> str:
    remedy = "Name the folder that `textlane export` wrote."
    if not 1 <= len(given) <= _MAX_PATH_CHARS or not given.isprintable():
        raise ConfigError(
            f"must be 1 to {_MAX_PATH_CHARS} printable characters",
            place="BUNDLE",
            value=given,
            remedy=remedy,
        )
    folder = Path(given)
    if not folder.is_absolute() and not folder.is_dir():
        # An absolute one may be there for the cluster alone.
        raise ConfigError(
            "there is no such folder here",
            place="BUNDLE",
            value=str(folder.absolute()),
            remedy=f"{remedy} If only the cluster has it, give its whole path.",
        )
    return str(folder.absolute())


def _read_plan(file: Path | None) -> Mapping[str, Any] | None:
    if file is None:
        return None
    return plan_to_mapping(load_plan(file))
