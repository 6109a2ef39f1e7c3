"""Where a model run spends its time, with and without the optimisers that sessions switch off.

    python tests/perf/session_operators.py MODEL.onnx [--shapes 1x28 16x32 1x400]

One thread, random ids. Prints CPU time a token and each operator's share.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from pipeline.contract.runtime_options import disabled_optimizers

RUNS = 30
MAX_ID = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--shapes", nargs="+", default=["1x28", "16x32", "1x400"])
    options = parser.parse_args()
    for shape in options.shapes:
        batch, seq = map(int, shape.split("x"))
        for disabled in ((), tuple(disabled_optimizers("cpu"))):
            micros, shares = profile(options.model, (batch, seq), disabled)
            without = f"without {', '.join(disabled)}" if disabled else "all optimisers"
            print(f"{shape}, {without}: {micros:.0f} us of CPU a token; {shares}", flush=True)


def profile(model: Path, shape: tuple[int, int], disabled: Sequence[str]) -> tuple[float, str]:
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/run"
        session = onnxruntime.InferenceSession(
            str(model), options, ["CPUExecutionProvider"], disabled_optimizers=list(disabled)
        )
        input_ids = np.random.default_rng(0).integers(0, MAX_ID, size=shape)
        feeds = {"input_ids": input_ids, "attention_mask": np.ones_like(input_ids)}
        session.run(["logits"], feeds)
        began_s = time.process_time()
        for _ in range(RUNS):
            session.run(["logits"], feeds)
        micros = (time.process_time() - began_s) / RUNS / input_ids.size * 1e6
        events = json.loads(Path(session.end_profiling()).read_text())
    spent: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("kernel_time"):
            spent[event["args"]["op_name"]] += event["dur"]
    total = spent.total()
    return micros, ", ".join(f"{name} {part / total:.0%}" for name, part in spent.most_common(5))


if __name__ == "__main__":
    main()
