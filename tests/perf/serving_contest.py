"""Serves one bundle by textlane and its peers in turn and puts each under the same load.

    python tests/perf/serving_contest.py BUNDLE [--peers NAME …] [--phases NAME …] [--rounds N]

Client and server share the machine. Peers with packages of their own get an environment each
under ``--envs``, once. Prints a table of the medians; ``--json`` keeps every figure. Nothing
else should run.
"""

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving_peers import BIN, CONTESTANTS, PEERS_BY_NAME, bin_folder, environ_of
from serving_texts import MIXED, SHORT, write_texts

READY_S = 120.0
_COLUMNS = (
    "texts/s (least–most)",
    "short P50/P99 ms",
    "long P50/P99 ms",
    "shed",
    "failed",
    "server CPU ms/text",
)
PHASES = {
    "short, 1 connection": (SHORT, "--connections", "1"),
    "short, 32": (SHORT, "--connections", "32"),
    "short, 128": (SHORT, "--connections", "128"),
    "mixed, 32": (MIXED, "--connections", "32"),
    "mixed, 128": (MIXED, "--connections", "128"),
    "mixed, 25/s": (MIXED, "--rate", "25"),
    "mixed, 80/s": (MIXED, "--rate", "80"),
    "short, 72/s": (SHORT, "--rate", "72"),
    "short, 1200": (SHORT, "--connections", "1200"),
}


def main() -> None:
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="contest-") as scratch:
        folder = Path(scratch)
        write_texts(folder, options.bundle / "tokenizer.json")
        results = [
            {"round": number, "peer": name} | run_peer(name, folder, options)
            for number in range(options.rounds)
            for name in options.peers
        ]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print_table(results, options)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=lambda text: Path(text).resolve())
    parser.add_argument("--peers", nargs="+", default=CONTESTANTS, choices=PEERS_BY_NAME)
    parser.add_argument("--phases", nargs="+", default=list(PHASES), choices=PHASES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2, help="of a peer's one session")
    parser.add_argument("--envs", type=Path, default=Path("outputs/peers"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run_peer(name: str, folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Start a peer, measure each phase, stop it."""
    with running(name, folder, options) as (url, first_answer_s, group):
        load(url, (SHORT, "--connections", "32"), folder, seconds=2)
        result: dict[str, object] = {
            "first_answer_s": first_answer_s,
            "memory_mib": memory_mib(group),
        }
        for phase in options.phases:
            before = cpu_by_process(group)
            figures = load(url, PHASES[phase], folder, seconds=options.seconds)
            figures["cpu_ms_per_text"] = per_text(cpu_by_process(group) - before, figures)
            result[phase] = figures
            print(f"{name}: {phase}: {in_short(figures)}", flush=True)
        result["memory_after_mib"] = memory_mib(group)
    return result


@contextmanager
def running(
    name: str, folder: Path, options: argparse.Namespace
) -> Iterator[tuple[str, float, int]]:
    """Give the address, seconds to the first answer and the session id of a started peer."""
    # A program that is told to end, as `timeout` does, takes the peer with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    peer, port = PEERS_BY_NAME[name], free_port()
    model = json.loads((options.bundle / "manifest.json").read_text())["default_model"]
    values = {"port": port, "bundle": options.bundle}
    programs = bin_folder(peer, options.envs.resolve())
    command = [part.format(**values) for part in peer.command]
    began = time.monotonic()
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [str(programs / command[0]), *command[1:]],
            env=environ_of(
                peer,
                bundle=options.bundle,
                model=model,
                threads=options.threads,
                programs=programs,
            ),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}/v1/predict"
        while not answers(url):
            if process.poll() is not None or time.monotonic() - began > READY_S:
                sys.exit((folder / "server.log").read_text())
            time.sleep(0.05)
        yield url, round(time.monotonic() - began, 2), process.pid
    finally:
        stop(process)


def said_by(folder: Path, pattern: str) -> str:
    """Return what the first group of a pattern matches in a line of the server's log."""
    deadline = time.monotonic() + READY_S
    # It may answer before it has said all.
    while not (found := re.search(pattern, (folder / "server.log").read_text(), flags=re.M)):
        if time.monotonic() > deadline:
            sys.exit(f"the server does not say {pattern}")
        time.sleep(0.1)
    return found[1]


def stop(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> None:
    family = descendants(process.pid)
    process.send_signal(number)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def answers(url: str) -> bool:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, b'{"text": "a fine film"}', headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


def load(url: str, phase: tuple[str, ...], folder: Path, *, seconds: int) -> dict[str, object]:
    """Return what ``textlane load --json`` measures."""
    texts, *shape = phase
    command = [str(BIN / "textlane"), "load", url, "--texts", str(folder / texts), *shape]
    command += ["--seconds", str(seconds), "--warm-up-s", "1", "--timeout", "60"]
    report = folder / "load.json"
    subprocess.run([*command, "--json", str(report)], check=True, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text())["summary"]


def in_short(figures: dict[str, object]) -> str:
    parts = [f"{figures['answered_per_s']:.0f}/s"]
    for group in figures["groups"]:
        if group["by"] != "lane" and group["latency_ms"]:
            times = group["latency_ms"]
            parts.append(f"{group['name']} {times['p50']:.0f}/{times['p99']:.0f} ms")
    parts.append(f"shed {figures['num_shed']}, failed {figures['num_failed']}")
    cpu = sorted(figures["cpu_ms_per_text"].items(), key=lambda item: -item[1])
    parts.append("CPU ms a text: " + ", ".join(f"{name} {value}" for name, value in cpu[:6]))
    return ", ".join(parts)


def print_table(results: list[dict[str, object]], options: argparse.Namespace) -> None:
    """Print medians of the rounds as Markdown."""
    for phase in options.phases:
        print(f"\n| {phase} | {' | '.join(_COLUMNS)} |")
        print("|---|---|---|---|---|---|---|")
        for name in options.peers:
            runs = [one[phase] for one in results if one["peer"] == name]
            rates = [one["answered_per_s"] for one in runs]
            cpu = [sum(one["cpu_ms_per_text"].values()) for one in runs]
            cells = [
                f"{statistics.median(rates):.0f} ({min(rates):.0f}–{max(rates):.0f})",
                times_of(runs, "short" if phase.startswith("mixed") else "all"),
                times_of(runs, "long"),
                str(sum(one["num_shed"] for one in runs)),
                str(sum(one["num_failed"] for one in runs)),
                f"{statistics.median(cpu):.2f}",
            ]
            print(f"| {name} | {' | '.join(cells)} |")
    print("\n| | first answer s | memory MiB before and after |\n|---|---|---|")
    for name in options.peers:
        runs = [one for one in results if one["peer"] == name]
        medians = [
            statistics.median(one[key] for one in runs)
            for key in ("first_answer_s", "memory_mib", "memory_after_mib")
        ]
        print(f"| {name} | {medians[0]:.1f} | {medians[1]:.0f}, {medians[2]:.0f} |")


def times_of(runs: list[dict[str, object]], name: str) -> str:
    times = [
        group["latency_ms"]
        for run in runs
        for group in run["groups"]
        if group["name"] == name and group["by"] != "lane" and group["latency_ms"]
    ]
    if not times:
        return "–"
    return "/".join(f"{statistics.median(one[key] for one in times):.0f}" for key in ("p50", "p99"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def descendants(root: int) -> list[int]:
    """Return a process and all that came from it, by parent and by session."""
    rows = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parts = (folder / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        rows.append((int(folder.name), int(parts[1]), int(parts[3])))
    family = {root} | {pid for pid, _, session in rows if session == root}
    while more := {pid for pid, parent, _ in rows if parent in family} - family:
        family |= more
    return sorted(family)


def cpu_by_process(root: int) -> Counter[str]:
    """Return the CPU seconds of a family of processes so far, by what they call themselves."""
    seconds: Counter[str] = Counter()
    for pid in descendants(root):
        try:
            parts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            name = Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0].strip()
        except OSError:
            continue
        ticks = int(parts[11]) + int(parts[12])
        seconds[name.rpartition("/")[2]] += ticks / os.sysconf("SC_CLK_TCK")
    return seconds


def per_text(seconds: Counter[str], figures: dict[str, object]) -> dict[str, float]:
    """Return milliseconds for each text answered, the warm-up's included."""
    num_texts = max(1, figures["num_answered"] + figures["num_warm_up"])
    return {name: round(1000 * spent / num_texts, 2) for name, spent in seconds.items()}


def memory_mib(root: int) -> int:
    """Return the proportional set size of a family of processes."""
    total_kib = 0
    for pid in descendants(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total_kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kib // 1024


if __name__ == "__main__":
    main()
