"""The `textlane predict` command: a bundle's answers to texts, without Ray or HTTP."""

import argparse
import codecs
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.contract.errors import (
    EmptyTextError,
    InferenceError,
    InvalidRequestError,
    RequestError,
    TextlaneError,
)
from pipeline.contract.text_output import print_text
from pipeline.contract.tokenization import TextEncoder
from serve_app import COMMANDS
from serve_app.answers import AnswerDetail, build_answer
from serve_app.complaints import print_error, print_warning
from serve_app.config import ServeSettings, load_serve_settings
from serve_app.encoding import EncodedRow, check_pairing, encode_pair, encode_texts
from serve_app.limits import ServingLimits
from serve_app.machine import usable_cpus
from serve_app.schemas import AnyAnswer, MultiLabelAnswer, SequenceAnswer
from serve_app.served import Served, open_served
from serve_app.session import ScoringSession, score_rows

_TEXTS_AT_ONCE = 256
_DETAIL = AnswerDetail(with_scores=True)
_EPILOG = """\
examples:
  textlane predict "A film to see twice."
  textlane predict --bundle outputs/demo_cpu/bundle --json "Dull." "Great fun."
  textlane predict --set model=model.onnx < reviews.txt
  textlane predict "A man is eating." --pair "Somebody eats."

One text an argument; without any, one text a line from standard input. A bundle of pairs
takes one --pair for each text, in the same order. The answers are tab-separated lines (label,
score, text; several labels and their scores are joined by commas; for word labels word,
label, score and an empty line after each text) or, with --json, one JSON object a line.
A text that cannot be answered is named on standard error by its number; the others are
answered all the same, and the exit status is 1.
"""


@dataclass(frozen=True, kw_only=True)
class _Input:
    place: str
    """What errors call it."""
    text: str
    text_pair: str | None


def add_predict(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of a parser."""
    predict = commands.add_parser(
        "predict",
        help=COMMANDS["predict"],
        description=f"Command to {COMMANDS['predict']}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    predict.add_argument("texts", nargs="*", metavar="TEXT", help="a text; none reads lines")
    predict.add_argument(
        "--pair",
        dest="pairs",
        action="append",
        default=[],
        metavar="TEXT",
        help="second text of a pair; one for each TEXT (bundles of pairs only)",
    )
    predict.add_argument(
        "--config",
        type=Path,
        default=Path(__file__).with_name("config.yaml"),
        help="the Ray Serve file, not a job's (default: the installed serve_app/config.yaml)",
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
    predict.set_defaults(call=run_predict)


def run_predict(options: argparse.Namespace) -> int:
    """Print the answers and return the exit status: 0, or 1 if a text had none."""
    settings = load_serve_settings(options.config, options.sets).settings
    if options.bundle:
        settings = settings.model_copy(update={"bundle": str(options.bundle)})
    served = open_served(settings, named_by="--bundle")
    if served.tuning_note:
        print_warning(served.tuning_note)
    takes_pairs = served.bundle.manifest.takes_pairs
    check_pairing(is_pair=bool(options.pairs), takes_pairs=takes_pairs, place="--pair")
    _accept_any_bytes()
    is_given = options.texts or options.pairs
    inputs = _read_arguments(options.texts, options.pairs) if is_given else _read_stdin()
    num_failed = 0
    for given, answer in _label(inputs, served, settings):
        if isinstance(answer, TextlaneError):
            if options.debug:
                raise answer
            print_error(answer)
            num_failed += 1
        elif not print_text(_as_text(given, answer, is_json=options.json)):
            break
    return 1 if num_failed else 0


def _as_text(given: _Input, answer: AnyAnswer, *, is_json: bool) -> str:
    texts = {"text": given.text}
    if given.text_pair is not None:
        texts["text_pair"] = given.text_pair
    if is_json:
        return json.dumps({**texts, **answer.model_dump()}, ensure_ascii=False)
    return _as_lines(list(texts.values()), answer)


def _accept_any_bytes() -> None:
    # Cleaning drops bytes that are not text; reading them must not fail before. A locale that
    # knows ASCII only would make every other character such bytes.
    if isinstance(sys.stdin, io.TextIOWrapper):
        encoding = "utf-8" if _is_ascii(sys.stdin.encoding) else sys.stdin.encoding
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape")


def _is_ascii(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "ascii"


def _as_typed(text: str) -> str:
    if _is_ascii(sys.getfilesystemencoding()):
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    return text


def _label(
    inputs: Iterable[_Input], served: Served, settings: ServeSettings
) -> Iterator[tuple[_Input, AnyAnswer | TextlaneError]]:
    manifest, limits = served.bundle.manifest, served.limits
    encoder = served.bundle.load_text_encoder()
    session = ScoringSession(
        served.model_path,
        pad_token_id=manifest.pad_token_id,
        num_labels=len(manifest.labels),
        num_threads=settings.threads_per_replica or _threads_of_both_lanes(limits),
        device=settings.device,
    )
    waiting = iter(inputs)
    while chunk := list(itertools.islice(waiting, _TEXTS_AT_ONCE)):
        rows = _encode(chunk, encoder, served)
        good = [row for row in rows if isinstance(row, EncodedRow)]
        scored = iter(
            score_rows(
                session,
                [row.input_ids for row in good],
                max_batch_tokens=limits.max_batch_tokens,
                max_batch_requests=limits.max_batch_requests,
            )
        )
        for given, row in zip(chunk, rows, strict=True):
            if isinstance(row, RequestError):
                yield given, row
                continue
            outcome = next(scored)
            if isinstance(outcome, InferenceError):
                yield given, InferenceError(outcome.problem, place=given.place)
                continue
            answer = build_answer(
                row, outcome, task=manifest.task, labels=manifest.labels, detail=_DETAIL
            )
            yield given, answer


def _threads_of_both_lanes(limits: ServingLimits) -> int:
    # No other lane works beside this one; it may have the threads of both.
    return min(2 * limits.threads_per_replica, max(limits.threads_per_replica, usable_cpus()))


def _encode(
    inputs: Sequence[_Input], encoder: TextEncoder, served: Served
) -> Sequence[EncodedRow | RequestError]:
    if served.bundle.manifest.takes_pairs:
        return [_encode_pair(given, encoder, served) for given in inputs]
    return encode_texts(
        [given.text for given in inputs],
        encoder=encoder,
        task=served.bundle.manifest.task,
        limits=served.limits,
        places=[given.place for given in inputs],
    )


def _encode_pair(given: _Input, encoder: TextEncoder, served: Served) -> EncodedRow | RequestError:
    try:
        return encode_pair(
            given.text,
            given.text_pair or "",
            encoder=encoder,
            limits=served.limits,
            places=(given.place, f"--pair of {given.place}"),
        )
    except RequestError as error:
        return error


def _read_arguments(texts: Sequence[str], pairs: Sequence[str]) -> list[_Input]:
    if pairs and len(texts) != len(pairs):
        raise InvalidRequestError(
            f"there are {len(texts)} texts and {len(pairs)} second texts",
            place="--pair",
            remedy="Give one --pair for each text, in the same order.",
        )
    joined = itertools.zip_longest(map(_as_typed, texts), map(_as_typed, pairs))
    return [
        _Input(place=f"text {number}", text=text, text_pair=text_pair)
        for number, (text, text_pair) in enumerate(joined, 1)
    ]


def _read_stdin() -> Iterator[_Input]:
    if sys.stdin.isatty():
        raise EmptyTextError(
            "there is no text", remedy="Give one as argument, or lines on standard input."
        )
    return (
        _Input(place=f"text {number}", text=line.rstrip("\n"), text_pair=None)
        for number, line in enumerate(sys.stdin, 1)
        if line.strip()
    )


def _as_lines(texts: Sequence[str], answer: AnyAnswer) -> str:
    shown = "\t".join(" ".join(text.split()) for text in texts)
    if isinstance(answer, SequenceAnswer):
        return f"{answer.label}\t{answer.score:.4f}\t{shown}"
    if isinstance(answer, MultiLabelAnswer):
        labels = ",".join(given.label for given in answer.labels)
        scores = ",".join(f"{given.score:.4f}" for given in answer.labels)
        return f"{labels or '-'}\t{scores or '-'}\t{shown}"
    words = (
        f"{word.word}\t{word.label or '-'}\t{0.0 if word.score is None else word.score:.4f}"
        for word in answer.words
    )
    return "\n".join([*words, "", ""])
