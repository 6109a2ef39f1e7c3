"""The wrong answers that the model was surest of: label errors and blind spots show here."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.contract.shards import ShardSplit
from pipeline.contract.tokenization import EncodedText, TextEncoder
from pipeline.evaluate.judged import Judged

_MAX_CHARS = 320


def find_mistakes(
    split: ShardSplit,
    scored: Judged,
    *,
    labels: Sequence[str],
    encoder: TextEncoder,
    is_token_task: bool,
    num_mistakes: int = 10,
) -> list[dict[str, Any]]:
    """Return the most confident mistakes, surest first, equal confidence in row order.

    Each has ``row_id``, ``true``, ``predicted``, ``confidence``, ``tokens``,
    ``is_truncated``, the shortened ``text`` and ``text_pair`` (null for single texts) and,
    for token labels, the ``word``.
    """
    confidence = scored.confidence
    wrong = np.flatnonzero(~scored.is_right)
    surest = wrong[np.argsort(-confidence[wrong], kind="stable")][:num_mistakes]
    row_ids, lengths = split.row_ids, split.lengths
    found = []
    for place in surest.tolist():
        row = int(scored.rows[place])
        words = split.text(row).split(" ") if is_token_task else []
        encoded = _encode(split, row, encoder, words=words)
        word = int(encoded.word_ids[int(scored.positions[place])]) if words else -1
        text = " ".join(words[max(0, word - 15) : word + 16]) if words else split.text(row)
        found.append(
            {
                "row_id": int(row_ids[row]),
                "true": scored.name_true(place, labels),
                "predicted": scored.name_predicted(place, labels),
                "confidence": float(confidence[place]),
                "tokens": int(lengths[row]),
                "is_truncated": encoded.is_truncated,
                "word": words[word] if words else None,
                "text": shorten(text),
                "text_pair": shorten(split.text_pair(row)) or None,
            }
        )
    return found


def _encode(split: ShardSplit, row: int, encoder: TextEncoder, *, words: list[str]) -> EncodedText:
    text, text_pair = split.text(row), split.text_pair(row)
    if words:
        return encoder.encode_words([words])[0]
    if text_pair:
        return encoder.encode_pairs([(text, text_pair)])[0]
    return encoder.encode_texts([text])[0]


def shorten(text: str, max_chars: int = _MAX_CHARS) -> str:
    """Return the text, cut at a blank and ended by ``…`` when it is over ``max_chars``."""
    if len(text) <= max_chars:
        return text
    head = text[: max_chars - 1]
    at_blank = head.rsplit(" ", 1)[0] if " " in head[max_chars // 2 :] else head
    return f"{at_blank.rstrip()}…"
