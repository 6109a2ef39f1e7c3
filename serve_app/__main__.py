"""The `textlane predict` command: a bundle's answers to texts, without Ray or HTTP."""

import argparse
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from pipeline.contract.errors import EmptyTextError, InferenceError, TextlaneError
from serve_app.answers import build_answer
from serve_app.config import ServeSettings, load_serve_settings
from serve_app.encoding import encode_texts
from serve_app.schemas import SequenceAnswer, TokenAnswer
from serve_app.served import Served, open_served
from serve_app.session import ScoringSession, score_rows

_TEXTS_AT_ONCE = 256
_EPILOG = """\
examples:
  textlane predict "A film to see twice."
  textlane predict --bundle outputs/demo_cpu/bundle --json "Dull." "Great fun."
  textlane predict --set model=model.onnx < reviews.txt

One text an argument; without any, one text a line from standard input. The answers are
tab-separated lines (label, score, text; for word labels word, label, score and an empty
line after each text) or, with --json, one JSON object a line.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 2 the user's mistake, 130 Ctrl-C."""
    options = _build_parser().parse_args(argv)
    try:
        _predict(options)
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (TextlaneError, OSError, ImportError) as error:
        if options.debug:
            raise
        Console(stderr=True, soft_wrap=True).print(
            f"error: {error}", style="red", markup=False, highlight=False
        )
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="textlane")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    text = "label texts with a bundle, without a server"
    predict = commands.add_parser(
        "predict",
        help=text,
        description=f"Command to {text}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    predict.add_argument("texts", nargs="*", metavar="TEXT", help="a text; none reads lines")
    predict.add_argument(
        "--config",
        type=Path,
        default=Path(__file__).with_name("config.yaml"),
        help="the Ray Serve file (default: the installed serve_app/config.yaml)",
    )
    predict.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting of serving, such as model=model.onnx",
    )
    predict.add_argument("--bundle", type=Path, help="the bundle's folder; beats --set bundle=")
    predict.add_argument("--json", action="store_true", help="print JSON lines with all scores")
    predict.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _predict(options: argparse.Namespace) -> None:
    settings = load_serve_settings(options.config, options.sets).settings
    if options.bundle:
        settings = settings.model_copy(update={"bundle": str(options.bundle)})
    served = open_served(settings)
    _accept_any_bytes()
    texts = enumerate(options.texts, 1) if options.texts else _lines_of_stdin()
    for text, answer in _label(texts, served, settings):
        if options.json:
            print(json.dumps({"text": text, **answer.model_dump()}, ensure_ascii=False))
        else:
            print(_as_lines(text, answer))


def _accept_any_bytes() -> None:
    # Cleaning drops bytes that are not text; reading and echoing them must not fail before.
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _label(
    numbered: Iterable[tuple[int, str]], served: Served, settings: ServeSettings
) -> Iterator[tuple[str, SequenceAnswer | TokenAnswer]]:
    manifest, limits = served.bundle.manifest, served.limits
    encoder = served.bundle.load_text_encoder()
    session = ScoringSession(
        served.model_path,
        pad_token_id=manifest.pad_token_id,
        num_labels=len(manifest.labels),
        num_threads=settings.threads_per_replica,
        device=settings.device,
    )
    waiting = iter(numbered)
    while chunk := list(itertools.islice(waiting, _TEXTS_AT_ONCE)):
        places = [f"text {number}" for number, _ in chunk]
        texts = [text for _, text in chunk]
        rows = encode_texts(
            texts, encoder=encoder, task=manifest.task, limits=limits, places=places
        )
        outcomes = score_rows(
            session,
            [row.encoded.input_ids for row in rows],
            max_batch_tokens=limits.max_batch_tokens,
            max_batch_requests=limits.max_batch_requests,
        )
        for place, text, row, outcome in zip(places, texts, rows, outcomes, strict=True):
            if isinstance(outcome, InferenceError):
                raise InferenceError(outcome.problem, place=place) from outcome
            answer = build_answer(
                row, outcome, task=manifest.task, labels=manifest.labels, with_scores=True
            )
            yield text, answer


def _lines_of_stdin() -> Iterator[tuple[int, str]]:
    if sys.stdin.isatty():
        raise EmptyTextError(
            "there is no text", remedy="Give one as argument, or lines on standard input."
        )
    numbered = enumerate(sys.stdin, 1)
    return ((number, line.rstrip("\n")) for number, line in numbered if line.strip())


def _as_lines(text: str, answer: SequenceAnswer | TokenAnswer) -> str:
    if isinstance(answer, SequenceAnswer):
        return f"{answer.label}\t{answer.score:.4f}\t{' '.join(text.split())}"
    words = (
        f"{word.word}\t{word.label or '-'}\t{0.0 if word.score is None else word.score:.4f}"
        for word in answer.words
    )
    return "\n".join([*words, ""])


if __name__ == "__main__":
    sys.exit(main())
