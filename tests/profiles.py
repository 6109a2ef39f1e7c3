"""Training profiles for bundles that tests write themselves."""

from collections.abc import Sequence
from typing import Any

from pipeline.contract.profile import length_edges

NUM_TEXTS = 1_000


def profile_values(percentiles: Sequence[int], labels: Sequence[str]) -> dict[str, Any]:
    """Return a profile's fields: 1,000 texts, even over lengths and labels, mostly sure."""
    num_classes = len(length_edges(percentiles)) + 1
    return {
        "num_texts": NUM_TEXTS,
        "length_counts": [NUM_TEXTS // num_classes] * num_classes,
        "num_tokens": 20 * NUM_TEXTS,
        "num_unknown_tokens": NUM_TEXTS // 10,
        "confidence_counts": [0, 0, 0, 0, 0, 100, 100, 100, 200, 500],
        "label_counts": {label: NUM_TEXTS // len(labels) for label in labels},
    }
