"""Provokes a symptom on a real `textlane serve`, lets doctor name it, cures it and asks again.

    python tests/drills/provoke.py padding_waste --bundle outputs/demo_cpu/bundle

Exit status: 0 doctor named it, and no longer once it was cured.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bundles import write_tiny_bundle  # noqa: E402 - the path is set above
from drill_recording import build_transcripts, recording_path, write_recording  # noqa: E402
from drill_table import DRILLS  # noqa: E402

from cluster.doctor.diagnosis import diagnose  # noqa: E402
from cluster.doctor.discovery import DISCOVERY_NAME, read_targets  # noqa: E402
from cluster.doctor.observations import Observations  # noqa: E402
from cluster.doctor.report import format_findings  # noqa: E402
from cluster.doctor.scraping import Scraper  # noqa: E402
from cluster.doctor.serving_view import observe_serving  # noqa: E402

READY_S = 180
WARM_UP_S = 3.0
LOOK_S = 10.0


@contextmanager
def served(bundle, state, *, ports):
    """Serve in the state; give (base URL, discovery file)."""
    log = Path(tempfile.mkstemp(prefix="drill-", suffix=".log")[1])
    command = [sys.executable, "-m", "cluster", "serve", "--bundle", str(bundle)]
    command += ["--port", str(ports[0]), "--dashboard-port", str(ports[1]), *state.options]
    # Ray passes metrics on every 10 s, which would make each drill a minute long.
    environ = {**os.environ, "RAY_metrics_report_interval_ms": "1000", "PYTHONPATH": str(ROOT)}
    environ |= {"RAY_USAGE_STATS_ENABLED": "0", **state.environ}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield await_ready(process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        log.unlink()


def await_ready(process, log):
    deadline = time.monotonic() + READY_S
    while "Ctrl-C stops it." not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the server did not start:\n{log.read_text()}")
        time.sleep(0.1)
    said = log.read_text()
    url = re.search(r"ready: (http://\S+) serves", said)[1]
    logs = Path(re.search(r"^logs: +(\S+)$", said, flags=re.M)[1])
    return url, logs.parent.parent / DISCOVERY_NAME


def start_load(url, state, seconds):
    """Return the load as a process; None where there is none."""
    if not state.load and not state.arrivals:
        return None
    command = [sys.executable, "-m", "serve_app", "load", url, *state.load]
    if state.arrivals:
        path = Path(tempfile.mkstemp(prefix="drill-", suffix=".csv")[1])
        path.write_text("\n".join(["arrival_s", *(f"{at:.3f}" for at in state.arrivals)]) + "\n")
        command += ["--arrivals", str(path)]
    command += ["--warm-up-s", "0", "--seconds", str(seconds)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )


def look(bundle, state, *, ports):
    """Serve in the state under its load; return the scrapes."""
    with served(bundle, state, ports=ports) as (url, discovery):
        time.sleep(WARM_UP_S)  # The first metrics and health checks.
        targets = read_targets(discovery)
        # Bursts, and a replica that comes, are to fall into the window.
        is_whole = bool(state.arrivals) or "scale_up_delay_s=1" in state.options
        load = start_load(url, state, LOOK_S + 2 * WARM_UP_S)
        time.sleep(0.5 if is_whole or load is None else WARM_UP_S)
        try:
            return Scraper().watch(targets, seconds=LOOK_S + 5.0 * is_whole)
        finally:
            if load is not None:
                load.wait(timeout=120)


def run_drill(name, bundle, *, ports, is_recording):
    """Return whether doctor named the symptom, and not once it was cured."""
    named = {}
    for kind, state in (("sick", DRILLS[name].sick), ("cured", DRILLS[name].cured)):
        scrapes = look(bundle, state, ports=ports)
        seen = Observations(serving=observe_serving(scrapes))
        findings = diagnose(seen)
        named[kind] = name in {finding.symptom for finding in findings}
        print(f"=== {name}, {kind}: {state.command}")
        print(format_findings(seen, findings), flush=True)
        if is_recording:
            write_recording(recording_path(f"{name}.{kind}"), scrapes)
    return named["sick"] and not named["cured"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("symptoms", nargs="+", choices=[*DRILLS, "all"])
    parser.add_argument("--bundle", type=Path, help="folder of a bundle with 512 tokens")
    parser.add_argument("--record", action="store_true", help="write tests/assets/doctor anew")
    parser.add_argument("--ports", type=int, nargs=2, default=[0, 0], help="to serve on")
    parser.add_argument(
        "--transcripts", action="store_true", help="print what doctor says of the recordings"
    )
    options = parser.parse_args()
    if options.transcripts:
        print(build_transcripts(), end="")
        return 0
    names = list(DRILLS) if "all" in options.symptoms else options.symptoms
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny_bundle(Path(folder) / "bundle", max_text_chars=20_000).folder
        for name in names:
            bundle = tiny if DRILLS[name].has_tiny_bundle else options.bundle
            if bundle is None:
                parser.error(f"{name} needs --bundle")
            if not run_drill(name, bundle, ports=options.ports, is_recording=options.record):
                failed.append(name)
    print(f"{len(names) - len(failed)} of {len(names)} named and cured; not: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
