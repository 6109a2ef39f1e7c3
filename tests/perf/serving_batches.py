"""What batching does: one text a run against up to 32, and how full batches are.

    python tests/perf/serving_batches.py BUNDLE [--seconds 8] [--connections 256]

For each setting of textlane: throughput and latency of short texts over many connections, of one
connection alone, and from the service's own metrics the mean batch, the padding and how busy the
session was. Nothing else should run.
"""

import argparse
import tempfile
import time
from pathlib import Path

import httpx
from serving_contest import load, running, said_by
from serving_peers import LARGE, ONE_TEXT
from serving_texts import SHORT, write_texts

SETTINGS = {
    ONE_TEXT: "1 text, no wait",
    "textlane": "32 texts, 10 ms, 512 tokens",
    LARGE: "32 texts, 10 ms, 2,048 tokens, run_cost_tokens 400",
}
_COUNTED = {
    "runs": "batch_rows_count",
    "rows": "rows_total",
    "real": "real_tokens_total",
    "padded": "padded_tokens_total",
    "busy_s": "session_seconds_total",
}
# Ray hands metrics on every 10 s.
_LATEST_S = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=lambda text: Path(text).resolve())
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--peers", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    options = parser.parse_args()
    options.threads, options.envs = 2, Path("outputs/peers")
    print("| setting | texts/s | P50/P99 ms | alone: P50/P99 ms | mean batch | padding | busy |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="batches-") as scratch:
        folder = Path(scratch)
        write_texts(folder, options.bundle / "tokenizer.json")
        for name in options.peers:
            with running(name, folder, options) as (url, _, _):
                print(measure(name, url, folder, options), flush=True)


def measure(name: str, url: str, folder: Path, options: argparse.Namespace) -> str:
    """Return a row of the table."""
    metrics = said_by(folder, r"^metrics: +(\S+)$")
    alone = load(url, (SHORT, "--connections", "1"), folder, seconds=options.seconds)
    before = settled(metrics, least_rows=rows_of(alone))
    phase = (SHORT, "--connections", str(options.connections))
    many = load(url, phase, folder, seconds=options.seconds)
    after = settled(metrics, least_rows=before["rows"] + rows_of(many))
    delta = {key: after[key] - before[key] for key in after}
    # The warm-up's second is in the counters as well.
    busy = delta["busy_s"] / (many["measured_s"] + 1.0)
    cells = [
        SETTINGS[name],
        f"{many['answered_per_s']:.0f}",
        times_of(many),
        times_of(alone),
        f"{delta['rows'] / delta['runs']:.1f}",
        f"{1 - delta['real'] / delta['padded']:.1%}",
        f"{busy:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def rows_of(figures: dict[str, object]) -> int:
    return figures["num_answered"] + figures["num_warm_up"] - figures["num_warm_up_failed"]


def times_of(figures: dict[str, object]) -> str:
    times = figures["groups"][0]["latency_ms"]
    return f"{times['p50']:.0f}/{times['p99']:.0f}"


def settled(url: str, *, least_rows: float) -> dict[str, float]:
    """Return the short lane's counters once so many rows are in."""
    deadline = time.monotonic() + _LATEST_S
    while read_counters(url)["rows"] < least_rows:
        if time.monotonic() > deadline:
            raise SystemExit(f"the metrics at {url} do not count {least_rows:.0f} rows")
        time.sleep(1.0)
    time.sleep(2.0)  # How long the session ran is told each second.
    return read_counters(url)


def read_counters(url: str) -> dict[str, float]:
    """Return the short lane's counters as they are exported now; 0 where there is none yet."""
    lines = httpx.get(url, timeout=10, trust_env=False).text.splitlines()
    return {key: _sum(lines, f"ray_textlane_{name}") for key, name in _COUNTED.items()}


def _sum(lines: list[str], name: str) -> float:
    ours = [line for line in lines if line.startswith(f"{name}{{") and 'lane="short"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in ours)


if __name__ == "__main__":
    main()
