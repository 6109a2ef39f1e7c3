"""How fast one session runs the same texts in different orders.

    python tests/perf/session_order.py BUNDLE [--threads N]

First come, first served; sorted in windows and filled up to a budget; sorted and cut where
padding and runs cost least, as serving does.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from serving_texts import MIXED, SHORT, write_texts

from pipeline.contract.batching import group_by_tokens
from pipeline.contract.bundle import load_bundle
from serve_app.session import Row, ScoringSession

ROWS, TOKENS = 32, 512
NUM_TEXTS = {SHORT: 1024, MIXED: 384}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    bundle = load_bundle(options.bundle)
    manifest = bundle.manifest
    session = ScoringSession(
        bundle.model_path(),
        pad_token_id=manifest.pad_token_id,
        num_labels=len(manifest.labels),
        num_threads=options.threads,
    )
    print("| texts | window | order | texts/s | CPU ms a text | padding | mean batch |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        write_texts(Path(folder), options.bundle / "tokenizer.json")
        for name, number in NUM_TEXTS.items():
            rows = read_rows(Path(folder) / name, bundle.load_text_encoder(), number)
            for window in (32, 64, 128):
                for order in (first_come, filled, cheapest):
                    measure(session, rows, window, order, name.partition(".")[0])


def read_rows(file: Path, encoder: object, number: int) -> list[Row]:
    lines = file.read_text(encoding="utf-8").splitlines()
    chosen = np.random.default_rng(0).permutation(len(lines))[:number]
    texts = [json.loads(lines[index])["text"] for index in chosen]
    batch = encoder.encode_batch(texts)
    return np.split(batch.input_ids, np.cumsum(batch.lengths)[:-1])


def first_come(lengths: Sequence[int]) -> list[list[int]]:
    return [list(range(at, min(at + ROWS, len(lengths)))) for at in range(0, len(lengths), ROWS)]


def filled(lengths: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = [[]]
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        is_full = len(groups[-1]) == ROWS or (len(groups[-1]) + 1) * lengths[index] > TOKENS
        if groups[-1] and is_full:
            groups.append([])
        groups[-1].append(index)
    return groups


def cheapest(lengths: Sequence[int]) -> list[list[int]]:
    return group_by_tokens(lengths, max_batch_tokens=TOKENS, max_batch_requests=ROWS)


def measure(
    session: ScoringSession, rows: list[Row], window: int, order: object, name: str
) -> None:
    real = padded = num_runs = 0
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for at in range(0, len(rows), window):
        some = rows[at : at + window]
        for group in order([len(row) for row in some]):
            session.score_group([some[index] for index in group])
            lengths = [len(some[index]) for index in group]
            real, padded = real + sum(lengths), padded + max(lengths) * len(lengths)
            num_runs += 1
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    print(
        f"| {name} | {window} | {order.__name__} | {len(rows) / wall_s:.0f} "
        f"| {1000 * cpu_s / len(rows):.2f} | {1 - real / padded:.0%} "
        f"| {len(rows) / num_runs:.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
