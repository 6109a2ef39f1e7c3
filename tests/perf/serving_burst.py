"""A recorded burst against textlane: what is lost, what is refused, how long answers take.

    python tests/perf/serving_burst.py BUNDLE --traces FOLDER [--speed 10] [--seconds 60]

FOLDER has ``azure2023_code_min.csv``: the arrivals of the Azure code trace of 2023 (8,819 requests
in 3,436 s, coefficient of variation 13), in a column ``arrival_s``. The whole of it takes 344 s at
ten times its speed. One text in ten is long. Nothing else should run.
"""

import argparse
import json
import tempfile
from pathlib import Path

from serving_contest import load, running
from serving_peers import PEERS_BY_NAME
from serving_texts import MIXED, write_texts

TRACE = "azure2023_code_min.csv"
_COUNTS = ("num_due", "num_answered", "num_shed", "num_failed", "num_unanswered")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=lambda text: Path(text).resolve())
    parser.add_argument("--traces", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--speed", type=float, default=10.0)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--peers", nargs="+", default=["textlane"], choices=PEERS_BY_NAME)
    parser.add_argument("--threads", type=int, default=2, help="of a peer's one session")
    parser.add_argument("--envs", type=Path, default=Path("outputs/peers"))
    options = parser.parse_args()
    trace = options.traces / TRACE
    if not trace.is_file():
        parser.error(f"there is no {TRACE} in {options.traces}")
    phase = (MIXED, "--arrivals", str(trace), "--speed", str(options.speed))
    with tempfile.TemporaryDirectory(prefix="burst-") as scratch:
        folder = Path(scratch)
        write_texts(folder, options.bundle / "tokenizer.json")
        for name in options.peers:
            with running(name, folder, options) as (url, _, _):
                show(name, load(url, phase, folder, seconds=options.seconds))


def show(name: str, figures: dict[str, object]) -> None:
    """Print the counts, what is lost, and the latencies of each kind of text."""
    due = figures["num_due"]
    counts = {key.removeprefix("num_"): figures[key] for key in _COUNTS}
    lost = due - sum(figures[key] for key in _COUNTS[1:])
    print(f"{name}: {json.dumps(counts)}, lost without a word: {lost}")
    print(f"  refused with 429: {figures['num_shed'] / max(1, due):.1%}")
    for group in figures["groups"]:
        if times := group["latency_ms"]:
            name = f"{group['by']} {group['name']}"
            print(f"  {name}: P50 {times['p50']:.0f}, P99 {times['p99']:.0f} ms")
    busiest = max(second["num_due"] for second in figures["seconds"])
    print(f"  most in a second: {busiest}", flush=True)


if __name__ == "__main__":
    main()
