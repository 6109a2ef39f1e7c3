"""The load command against a tiny service on loopback."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from load_server import TinyServer, answered, failed

from serve_app.__main__ import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
BRIEF = ("--seconds", "0.4", "--warm-up-s", "0")


def load(url, *arguments):
    return main(["load", url, *BRIEF, *arguments])


def by_length(_, text):
    return answered("long" if len(text.split()) > 100 else "short", 0.01)


def figures(capsys):
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("loop", [("--connections", "4"), ("--rate", "100")])
def test_both_loops_measure_each_kind_of_text_and_each_lane(capsys, loop):
    with TinyServer(by_length) as server:
        assert load(server.url, "--json", "-", *loop) == 0

    found = figures(capsys)
    summary = found["summary"]
    groups = {(group["by"], group["name"]): group for group in summary["groups"]}
    assert summary["num_due"] == summary["num_answered"] == len(server.requests) - 1
    assert summary["num_failed"] == summary["num_shed"] == 0
    assert groups["all", "all"]["latency_ms"]["p50"] >= 10
    short, long = groups["lane", "short"], groups["lane", "long"]
    assert short["num_answered"] == groups["text", "5-20 words"]["num_answered"]
    assert long["num_answered"] == groups["text", "200-400 words"]["num_answered"]
    assert short["num_answered"] + long["num_answered"] == summary["num_answered"]


def test_the_table_tells_it_to_people(capsys):
    with TinyServer(by_length) as server:
        assert load(server.url, "--connections", "2") == 0

    captured = capsys.readouterr()
    for text in ("P50", "P99", "max", "5-20 words", "long lane", "answers/s", "of a CPU"):
        assert text in captured.out
    assert captured.err == ""


def test_a_trace_is_replayed(tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text("when,x\n10,1\n10.2,1\n10.4,1\n10.4,1\n99,1\n")
    with TinyServer(by_length) as server:
        arguments = ("--arrivals", str(trace), "--column", "when", "--speed", "2", "--json", "-")
        assert load(server.url, *arguments) == 0

    found = figures(capsys)
    assert found["summary"]["num_due"] == 4
    assert "trace.csv at 2 ×" in found["arrivals"]
    assert found["summary"]["measured_s"] == 0.4


def test_failures_are_told_by_kind_and_429_apart(tmp_path, capsys):
    def some_fail(number, _):
        # The first one is not counted: it only finds out whether the service is there.
        kinds = (None, failed(429, "overloaded", "the lane is full"), failed(500, "inference"))
        return [*kinds, answered()][number % 4] if number else answered()

    with TinyServer(some_fail) as server:
        out = tmp_path / "load.json"
        assert load(server.url, "--rate", "100", "--json", str(out)) == 0

    summary = json.loads(out.read_text())["summary"]
    counts = {failure["kind"]: failure["count"] for failure in summary["failures"]}
    assert set(counts) == {"429 overloaded", "500 inference", "connection lost"}
    assert summary["num_shed"] == counts["429 overloaded"]
    assert summary["num_failed"] == counts["500 inference"] + counts["connection lost"]
    assert "the lane is full" in capsys.readouterr().out


def test_timeouts_are_marked_as_at_least_so_long(capsys):
    with TinyServer(lambda number, _: answered(wait_s=0.0 if number == 0 else 9.0)) as server:
        assert load(server.url, "--rate", "50", "--timeout", "0.2") == 1

    out = capsys.readouterr().out
    assert ">200" in out
    assert "timeout" in out


def test_page_json_key_and_texts_of_a_file(tmp_path, capsys):
    texts, key = tmp_path / "texts.jsonl", tmp_path / "key.txt"
    texts.write_text('{"text": "red"}\n{"text": "blue"}\n')
    key.write_text("secret-key\n")
    page, out = tmp_path / "load.html", tmp_path / "load.json"
    with TinyServer(by_length) as server:
        arguments = ("--texts", str(texts), "--html", str(page), "--json", str(out))
        assert load(server.url, *arguments, "--api-key", f"@{key}") == 0

    assert {body["text"] for _, _, body in server.requests} == {"red", "blue"}
    assert {headers["x-api-key"] for _, headers, _ in server.requests} == {"secret-key"}
    assert "<svg" in page.read_text()
    assert f"written: {out}, {page}" in capsys.readouterr().err
    for written in (page, out):
        assert "secret-key" not in written.read_text()


def test_the_same_seed_sends_the_same_texts():
    sent = []
    for seed in ("5", "5", "6"):
        with TinyServer(by_length) as server:
            load(server.url, "--rate", "50", "--seed", seed)
        sent.append([body["text"] for _, _, body in server.requests])

    assert sorted(sent[0]) == sorted(sent[1]) != sorted(sent[2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--connections", "0"], r"--connections: .*whole number from 1 to 20,000 \(got '0'\)"),
        (["--connections", "2.5"], "--connections: "),
        (["--rate", "x"], r"--rate: .*\(got 'x'\)"),
        (["--rate", "nan"], "--rate: "),
        (["--rate", "1e9"], "--rate: "),
        (["--seconds", "0"], "--seconds: "),
        (["--seconds", "9" * 500], "--seconds: "),
        (["--timeout", "-1"], "--timeout: "),
        (["--warm-up-s", "inf"], "--warm-up-s: "),
        (["--seed", "-1"], "--seed: "),
        (["--seed", "1" * 5000], "--seed: "),
        (["--speed", "2"], "--speed: goes with --arrivals only"),
        (["--impatient", "--rate", "5"], "--impatient: goes with a closed loop only"),
        (["--column", "a"], "--column: goes with --arrivals only"),
        (["--mix", "x"], "--mix: cannot be read"),
        (["--rate", "0.01", "--warm-up-s", "0.3"], "no request is due after the warm-up"),
        (["--json", "/nowhere/x.json"], "--json /nowhere/x.json: its folder is not there"),
        (["--html", "/tmp"], "--html /tmp: is a folder"),
        (["--html", ""], "is a folder"),
        (["--api-key", "a\r\nX-Evil: b"], "--api-key: must be 1 to 1000 printable"),
        (["--api-key", ""], "--api-key: must be"),
        (["--api-key", "@/nowhere"], "--api-key @/nowhere: cannot be read"),
        (["--texts", "/nowhere"], "--texts /nowhere: cannot be read"),
        (["--arrivals", "/nowhere"], "--arrivals /nowhere: cannot be read"),
    ],
)
def test_a_bad_option_is_named_before_anything_is_sent(capsys, arguments, message):
    with TinyServer(by_length) as server:
        assert load(server.url, *arguments) == 2

    assert server.requests == []
    assert re.search(message, capsys.readouterr().err)


def test_nobody_listening_is_said_at_once(capsys):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))

        assert load(f"http://127.0.0.1:{probe.getsockname()[1]}") == 2

    assert "nothing listens there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (failed(401, "unauthorized", "no key"), r"401 unauthorized, no key\. .*--api-key"),
        (failed(404, "not_found"), "does not take texts there: 404 not_found.*/v1/predict"),
        ((0.0, None, b"SSH-2.0\r\n\r\n"), "cannot be reached: answer is no HTTP"),
        (answered(wait_s=9.0), "the first request had no answer within 0.2 s"),
    ],
)
def test_what_would_fail_every_request_is_said_at_once(capsys, answer, message):
    with TinyServer(lambda *_: answer) as server:
        assert load(server.url, "--timeout", "0.2") == 2

    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_shows_what_was_measured_so_far(tmp_path, number):
    out = tmp_path / "load.json"

    def hangs_later(number, _):
        return answered(wait_s=0.01 if number < 20 else 60.0)

    with TinyServer(hangs_later) as server:
        command = [sys.executable, "-m", "serve_app", "load", server.url, "--json", str(out)]
        process = subprocess.Popen(
            [*command, "--rate", "50", "--warm-up-s", "0", "--seconds", "60"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        while len(server.requests) < 30:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        shown, _ = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "stopped after" in shown
    summary = json.loads(out.read_text())["summary"]
    assert summary["num_answered"] == 19
    assert summary["num_unanswered"] >= 10
    assert summary["num_due"] == summary["num_answered"] + summary["num_unanswered"]


def test_a_stop_in_the_warm_up_writes_nothing(tmp_path):
    out = tmp_path / "load.json"
    with TinyServer(by_length) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "serve_app", "load", server.url, "--json", str(out)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        while len(server.requests) < 3:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "stopped before anything was measured" in said
    assert not out.exists()
