"""What the kinds of exported graph take and weigh beside torch: MiniLM's shape and BERT-base's."""

from pathlib import Path

import pytest
import torch
from export_graphs import FUSED, INT8, SUBJECTS, UNFUSED, write_graphs
from timing import THREADS

from pipeline.export.latency import measure_latencies
from pipeline.export.onnx_graph import as_logits_function
from pipeline.export.onnx_session import open_model

pytestmark = pytest.mark.perf

TORCH = "torch"


def print_table(
    title: str, latency_ms: dict[str, dict[str, float]], sizes_mb: dict[str, float]
) -> None:
    """Print milliseconds and, in brackets, how many times faster than torch."""
    shapes = list(latency_ms[TORCH])
    print(f"\n| {title}, ms (times torch's speed) | MB | " + " | ".join(shapes) + " |")
    print("|---" * (len(shapes) + 2) + "|")
    for name, values in latency_ms.items():
        cells = [
            f"{values[shape]:.1f} ({latency_ms[TORCH][shape] / values[shape]:.2f})"
            for shape in shapes
        ]
        print(f"| {name} | {sizes_mb[name]:.1f} | " + " | ".join(cells) + " |")


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_kind_of_graph_is_timed_beside_torch(name: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name]
    threads_before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        model, paths = write_graphs(subject, tmp_path)
        runs = {TORCH: as_logits_function(model)}
        runs |= {kind: open_model(path, num_threads=THREADS) for kind, path in paths.items()}
        latency_ms = measure_latencies(runs, subject.shapes, vocab_size=subject.vocab_size)
    finally:
        torch.set_num_threads(threads_before)

    weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    sizes_mb = {TORCH: weights / 1e6}
    sizes_mb |= {kind: path.stat().st_size / 1e6 for kind, path in paths.items()}
    print_table(name, latency_ms, sizes_mb)
    assert set(latency_ms) == {TORCH, UNFUSED, FUSED, *INT8}
