"""Answers one text as serving does, in a process of its own: what a cold start takes and holds.

Imports nothing but what serving imports, and that only when the clock runs.
"""

import json
import sys
import time
from pathlib import Path

HEAVY = ("torch", "ray", "transformers", "onnx", "pyarrow")
PARTS = ("imports", "bundle", "tokenizer", "session", "first answer")
NUM_THREADS = 2


def main() -> None:
    """Print when each part ended (seconds since the epoch), the logits and the memory, as JSON.

    Arguments: the bundle's folder, a model file of it, the text.
    """
    folder, model, text = Path(sys.argv[1]), *sys.argv[2:]
    from pipeline.contract.bundle import load_bundle
    from serve_app.session import ScoringSession

    ends = {"imports": time.time()}
    bundle = load_bundle(folder)
    ends["bundle"] = time.time()
    encoder = bundle.load_text_encoder()
    ends["tokenizer"] = time.time()
    session = ScoringSession(
        bundle.model_path(model),
        pad_token_id=bundle.manifest.pad_token_id,
        num_labels=len(bundle.manifest.labels),
        num_threads=NUM_THREADS,
    )
    ends["session"] = time.time()
    [encoded] = encoder.encode_texts([encoder.clean(text)])
    [logits] = session.score_group([encoded.input_ids])
    ends["first answer"] = time.time()
    heavy = [name for name in HEAVY if name in sys.modules]
    found = {"ends": ends, "logits": list(map(float, logits)), "heavy": heavy}
    print(json.dumps({**found, "memory_mib": read_memory_mib()}))


def read_memory_mib() -> dict[str, float]:
    """Return this process's memory now (VmRSS) and at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = {key: value for key, _, value in (line.partition(":") for line in lines)}
    return {name: int(values[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


if __name__ == "__main__":
    main()
