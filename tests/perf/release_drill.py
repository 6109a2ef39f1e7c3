"""Releases on `textlane serve` under load: what is promoted, what is taken back, why and how soon.

    PYTHONPATH=. python tests/perf/release_drill.py [--rate 120] [--only good,slow]

Not a test: it takes some ten minutes and times what it sees. It ends with status 1 where a
request failed that should not, or a release ended otherwise than it must.
"""

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]

import httpx  # noqa: E402 -- the tests' folders must be found first
from bundles import PLAIN, Variant, write_tiny_bundle  # noqa: E402
from release_load import Load  # noqa: E402
from served import serving  # noqa: E402

from serve_app.release.table_follower import EXCHANGE_TIMEOUT_S, PERIOD_S  # noqa: E402

PLAN = {
    "settle_s": 2,
    "steps": [
        {"weight": 0.3, "dwell_s": 10},
        {"weight": 0.5, "dwell_s": 10},
        {"weight": 1.0, "dwell_s": 10},
    ],
    "shadow": {"share": 1.0, "texts_per_s": 30},
    # Tiny models answer in a few milliseconds, of which most is noise on a shared machine.
    "thresholds": {
        "max_error_rise": 0.02,
        "max_flip_rate": 0.02,
        "max_p99_ratio": 3.0,
        "max_typical_ratio": 1.5,
    },
}
HELD = {**PLAN, "steps": [{"weight": 0.3, "dwell_s": 3600}]}
VARIANTS = {
    "v1": PLAIN,
    "good": Variant(weight=4.2),
    "slow": Variant(num_slow=600),
    "failing": Variant(num_missing=2),
    "wrong": Variant(is_swapped=True),
    "killed": Variant(weight=4.4),
    "v2": Variant(weight=4.6),
    "v3": Variant(weight=4.8),
}
REASONS = {"slow": ("p99", "typical"), "failing": ("errors",), "wrong": ("flips",)}
PATIENCE_S = 240.0


class Drill:
    """One server at a time over the same bundles, and what the drill found."""

    def __init__(self, folder, *, rate):
        self.rate, self.faults = rate, []
        self.bundles = {
            name: write_tiny_bundle(folder / name, variant=variant)
            for name, variant in VARIANTS.items()
        }
        self.gone = {}
        """Version → when it was rolled back."""
        self._stack = ExitStack()

    def version(self, name):
        return f"{self.bundles[name].version}/model.onnx"

    def up(self):
        self._stack = ExitStack()
        settings = ("lane_num_cpus=0.15", "threads_per_replica=1")
        sets = [part for setting in settings for part in ("--set", setting)]
        self.server = self._stack.enter_context(serving(self.bundles["v1"].folder, *sets))
        self.server.wait_for("Ctrl-C stops it.")
        self.admin = self._stack.enter_context(httpx.Client(timeout=30.0, trust_env=False))
        # A desk that is started again takes the same port.
        self.admin.base_url = re.search(r"releases: +(http://[^/]+)/", self.server.said)[1]
        self.load = self._stack.enter_context(Load(self.server.base_url, rate=self.rate))

    def down(self):
        self._stack.close()

    def status(self):
        try:
            return self.admin.get("/v1/release").json()
        except httpx.HTTPError:  # Its process was killed; another one comes.
            return {"state": "gone", "weight": None}

    def act(self, action, **body):
        answer = self.admin.post(f"/v1/release/{action}", json=body)
        if answer.status_code != 200:
            raise SystemExit(f"{action}: {answer.text}")

    def start(self, name, plan):
        self.act("start", bundle=str(self.bundles[name].folder), plan=plan)
        return time.monotonic()

    def wait(self, sign, what):
        until_s = time.monotonic() + PATIENCE_S
        while not sign():
            if time.monotonic() > until_s:
                raise SystemExit(f"{what}: not within {PATIENCE_S:.0f} s: {self.status()}")
            time.sleep(0.1)
        return time.monotonic()

    def expect(self, is_so, what):
        if not is_so:
            self.faults.append(what)
        print(f"  {'ok   ' if is_so else 'FAULT'} {what}", flush=True)

    def answers_of(self, name):
        return [one for one in list(self.load.seen) if one.version == self.version(name)]

    def statuses(self, since_s):
        return Counter(one.status for one in list(self.load.seen) if one.asked_s >= since_s)

    def pid_of(self, sign):
        """Return a process below this drill's own server; served.py knows them by a mark."""
        return min(self.server.pids_of(sign))

    def run_good(self):
        began_s = self.start("good", PLAN)
        self.wait(lambda: self.status()["state"] not in ("starting", "running"), "good")
        status = self.status()
        took_s = time.monotonic() - began_s
        time.sleep(6.0)
        print(f"good: {status['state']} after {took_s:.0f} s, {self.statuses(began_s)}")
        self.expect(
            status["state"] == "promoted", f"a good version is promoted: {status['reason']}"
        )
        self.expect(set(self.statuses(began_s)) == {200}, "no request failed")
        last = [one.version for one in self.load.seen[-50:]]
        self.expect(set(last) == {self.version("good")}, "it answers everything from then on")

    def run_bad(self, name):
        began_s = self.start(name, PLAN)
        self.wait(lambda: self.answers_of(name), f"{name} answers")
        first_s = min(one.asked_s for one in self.answers_of(name))
        ended_s = self.wait(lambda: self.status()["state"] != "running", name)
        status = self.status()
        self.gone[self.version(name)] = ended_s
        time.sleep(6.0)
        step = status["rollback"]["step_number"] if status["rollback"] else None
        print(
            f"{name}: {status['state']} {ended_s - first_s:.1f} s after its first answer, step "
            f"{step}, {len(self.answers_of(name))} answers of it, {self.statuses(began_s)}\n"
            f"  why: {status['reason'][:300]}"
        )
        self.expect(status["state"] == "rolled_back", f"the {name} version is rolled back")
        decided = any(reason in status["reason"] for reason in REASONS[name])
        self.expect(decided, f"for {' or '.join(REASONS[name])}")
        failed = [one for one in self.load.seen if one.asked_s >= began_s and one.status != 200]
        wanted = [one for one in failed if name == "failing" and one.was_hard]
        self.expect(len(failed) == len(wanted), "no other request failed than those it fails on")

    def run_kills(self):
        self.start("killed", HELD)
        self.wait(lambda: len(self.answers_of("killed")) > 20, "killed answers")
        for what, sign in (
            ("controller", "ray::ServeController"),
            ("desk", "ray::ServeReplica:textlane:ReleaseDesk"),
            ("ingress", "ray::ServeReplica:textlane:Ingress"),
        ):
            before_s, number = time.monotonic(), len(self.answers_of("killed"))
            os.kill(self.pid_of(sign), signal.SIGKILL)
            self.wait(
                lambda: self.status()["weight"] == 0.3 and self.status()["num_ingresses"] > 0,
                f"{what} killed",
            )
            self.wait(lambda n=number: len(self.answers_of("killed")) > n + 20, f"{what} killed")
            took_s = time.monotonic() - before_s
            time.sleep(5.0)
            share = self.share_of("killed", time.monotonic() - 5.0)
            print(f"{what} killed: back after {took_s:.1f} s, {self.statuses(before_s)}")
            self.expect(self.status()["state"] == "running", f"the release outlives its {what}")
            self.expect(abs(share - 0.3) < 0.1, f"the candidate has its share: {share:.2f}")
        self.kill_node()

    def kill_node(self):
        """Kill the node's processes all at once, then start the service anew."""
        for sign in ("raylet", "gcs_server"):
            for pid in self.server.pids_of(sign):
                os.kill(pid, signal.SIGKILL)
        self.server.process.wait(timeout=90)
        self.down()
        began_s = time.monotonic()
        self.up()
        self.wait(lambda: len(self.answers_of("killed")) > 20, "after the node")
        took_s = time.monotonic() - began_s
        time.sleep(5.0)
        share, status = self.share_of("killed", time.monotonic() - 5.0), self.status()
        print(f"node killed: the candidate answers {took_s:.0f} s after the new start")
        is_back = (status["state"], status["weight"]) == ("running", 0.3)
        self.expect(is_back, f"state and weight are back: {status['state']}, {status['weight']}")
        self.expect(abs(share - 0.3) < 0.1, f"the candidate has its share: {share:.2f}")
        self.act("abort")
        self.gone[self.version("killed")] = time.monotonic()

    def share_of(self, name, since_s):
        recent = [one for one in list(self.load.seen) if one.asked_s >= since_s and one.version]
        return sum(one.version == self.version(name) for one in recent) / max(1, len(recent))

    def run_next(self):
        self.start("v2", HELD)
        self.wait(lambda: len(self.answers_of("v2")) > 20, "v2 answers")
        self.act("abort")
        self.gone[self.version("v2")] = time.monotonic()
        self.start("v3", HELD)
        self.wait(lambda: len(self.answers_of("v3")) > 100, "v3 answers")
        os.kill(self.pid_of("ray::ServeReplica:textlane:Ingress"), signal.SIGKILL)
        number = len(self.answers_of("v3"))
        self.wait(lambda: len(self.answers_of("v3")) > number + 50, "v3 answers again")
        self.act("abort")
        self.gone[self.version("v3")] = time.monotonic()
        time.sleep(3.0)

    def find_ghosts(self):
        """Check every answer that was asked for after its version was rolled back."""
        late_s = [
            one.asked_s - self.gone[one.version]
            for one in self.load.seen
            if one.version in self.gone and one.asked_s > self.gone[one.version]
        ]
        # An ingress hears of it at its next exchange.
        is_over = max(late_s, default=0.0) <= PERIOD_S + EXCHANGE_TIMEOUT_S
        when = f"the last of {len(late_s)} after {max(late_s, default=0.0):.1f} s"
        self.expect(is_over, f"no answer of a version that was rolled back: {when}")


def main():
    """Run the drill; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=120.0, help="requests per second")
    parser.add_argument("--only", default="good,slow,failing,wrong,next,kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        drill = Drill(Path(folder), rate=options.rate)
        drill.up()
        try:
            for name in options.only.split(","):
                {
                    "good": drill.run_good,
                    "next": drill.run_next,
                    "kills": drill.run_kills,
                }.get(name, lambda name=name: drill.run_bad(name))()
                drill.find_ghosts()
        finally:
            drill.down()
    print(f"{len(drill.faults)} faults: {drill.faults}")
    return 1 if drill.faults else 0


if __name__ == "__main__":
    sys.exit(main())
