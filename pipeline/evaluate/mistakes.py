"""The wrong answers that the model was surest of: label errors and blind spots show here."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.contract.shards import ShardSplit
from pipeline.contract.tokenization import TextEncoder
from pipeline.evaluate.measure import Scored

_MAX_CHARS = 320


def find_mistakes(
    split: ShardSplit,
    scored: Scored,
    *,
    labels: Sequence[str],
    encoder: TextEncoder,
    is_token_task: bool,
    num_mistakes: int = 10,
) -> list[dict[str, Any]]:
    """Return the most confident mistakes, surest first, equal confidence in row order.

    Each has ``row_id``, ``true``, ``predicted``, ``confidence``, ``tokens``,
    ``is_truncated``, the shortened ``text`` and, for token labels, the ``word``.
    """
    confidence = scored.probabilities.max(axis=-1)
    wrong = np.flatnonzero(scored.predicted != scored.true)
    surest = wrong[np.argsort(-confidence[wrong], kind="stable")][:num_mistakes]
    row_ids, lengths = split.row_ids, split.lengths
    found = []
    for place in surest.tolist():
        row = int(scored.rows[place])
        words = split.text(row).split(" ") if is_token_task else []
        encoded = (
            encoder.encode_words([words]) if words else encoder.encode_texts([split.text(row)])
        )[0]
        word = int(encoded.word_ids[int(scored.positions[place])]) if words else -1
        text = " ".join(words[max(0, word - 15) : word + 16]) if words else split.text(row)
        found.append(
            {
                "row_id": int(row_ids[row]),
                "true": labels[int(scored.true[place])],
                "predicted": labels[int(scored.predicted[place])],
                "confidence": float(confidence[place]),
                "tokens": int(lengths[row]),
                "is_truncated": encoded.is_truncated,
                "word": words[word] if words else None,
                "text": shorten(text),
            }
        )
    return found


def shorten(text: str, max_chars: int = _MAX_CHARS) -> str:
    """Return the text, cut at a blank and ended by ``…`` when it is over ``max_chars``."""
    if len(text) <= max_chars:
        return text
    head = text[: max_chars - 1]
    at_blank = head.rsplit(" ", 1)[0] if " " in head[max_chars // 2 :] else head
    return f"{at_blank.rstrip()}…"
