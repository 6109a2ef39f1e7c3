"""The commands `textlane load`, `predict`, `release` and `tune`."""

import argparse
import sys
from collections.abc import Sequence

from pipeline.contract.errors import TextlaneError
from pipeline.contract.text_output import any_output
from serve_app.complaints import print_error
from serve_app.load.command import add_load
from serve_app.predict_command import add_predict
from serve_app.release.command import add_release
from serve_app.tune_command import add_tune


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 done, 1 a text had no answer (load: none had; release: it lost its traffic), 2 the user's
    mistake, 130 Ctrl-C.
    """
    options = argparse.Namespace(debug=False)
    try:
        with any_output():
            options = build_parser().parse_args(argv)
            return int(options.call(options))
    except (TextlaneError, OSError, ImportError) as error:
        if options.debug:
            raise
        print_error(error)
        return 2
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this package's commands; ``call`` is what runs one."""
    parser = argparse.ArgumentParser(prog="textlane")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_load(commands)
    add_predict(commands)
    add_release(commands)
    add_tune(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
