"""The Big List of Naughty Strings against a running textlane: no 5xx, and the same answer twice.

    python tests/perf/serving_blns.py BUNDLE --blns FOLDER

FOLDER has ``blns.json``, a JSON array of strings. Each is sent alone, then all in lists, by HTTP
and by gRPC; a list must say of each string what it was told alone. Exit status 1 on a fault.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import grpc
import httpx
from serving_contest import running, said_by
from serving_peers import BY_GRPC

from serve_app.rpc.predict_pb2 import PredictRequest
from serve_app.rpc.predictor import PredictorStub

_LIST = 32
# The same text in another batch: INT8 moves with its batch mates.
_TOLERANCE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=lambda text: Path(text).resolve())
    parser.add_argument("--blns", type=Path, required=True)
    options = parser.parse_args()
    options.threads, options.envs = 2, Path("outputs/peers")
    strings = json.loads((options.blns / "blns.json").read_text(encoding="utf-8"))
    with (
        tempfile.TemporaryDirectory(prefix="blns-") as scratch,
        running(BY_GRPC, Path(scratch), options) as (url, _, _),
    ):
        said = said_by(Path(scratch), r"^grpc: +(\S+), ")
        faults = ask_by_http(url, strings) + ask_by_grpc(said, strings)
    print("\n".join(faults) or "no fault")
    sys.exit(bool(faults))


def ask_by_http(url: str, strings: list[str]) -> list[str]:
    """Return what went wrong, one line each."""
    faults, alone, statuses = [], [], Counter()
    with httpx.Client(timeout=60, trust_env=False) as client:
        for text in strings:
            answer = client.post(url, json={"text": text})
            statuses[answer.status_code] += 1
            if answer.status_code not in (200, 400, 413):
                faults.append(f"HTTP {answer.status_code} for {text!r}: {answer.text[:200]}")
            alone.append(answer.json())
        for start in range(0, len(strings), _LIST):
            answer = client.post(url, json={"texts": strings[start : start + _LIST]})
            if answer.status_code != 200:
                faults.append(f"HTTP {answer.status_code} for the list at {start}")
                continue
            faults += [
                f"HTTP: {text!r} alone {one}, in a list {other}"
                for text, one, other in zip(
                    strings[start:], alone[start:], answer.json()["answers"], strict=False
                )
                if not is_same(one, other)
            ]
    print(f"HTTP, {len(strings)} strings alone: {dict(statuses)}")
    return faults


def is_same(one: dict, other: dict) -> bool:
    """Return whether two outcomes tell the same, within the tolerance of INT8."""
    if "error" in one or "error" in other:
        codes = [outcome.get("error", {}).get("code") for outcome in (one, other)]
        return codes[0] == codes[1]
    return abs(one["score"] - other["score"]) < _TOLERANCE


def ask_by_grpc(address: str, strings: list[str]) -> list[str]:
    """Return what went wrong, one line each."""
    faults, codes = [], Counter()
    with grpc.insecure_channel(address) as channel:
        predictor = PredictorStub(channel)
        for text in strings:
            try:
                predictor.Predict(PredictRequest(text=text), timeout=60)
                codes["OK"] += 1
            except grpc.RpcError as error:
                codes[error.code().name] += 1
                if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                    faults.append(f"gRPC {error.code().name} for {text!r}: {error.details()}")
        for start in range(0, len(strings), _LIST):
            asked = PredictRequest(texts=strings[start : start + _LIST])
            if len(predictor.Predict(asked, timeout=60).answers) != len(asked.texts):
                faults.append(f"gRPC: the list at {start} has not as many answers as texts")
    print(f"gRPC, {len(strings)} strings alone: {dict(codes)}")
    return faults


if __name__ == "__main__":
    main()
