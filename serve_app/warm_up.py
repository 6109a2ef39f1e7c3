"""The shapes that a lane's first requests would otherwise wait for."""

MIN_TOKENS = 3
"""Tokens of the shortest text, between the two special ones."""


def warm_up_shapes(
    *, min_tokens: int, max_tokens: int, max_batch_tokens: int, max_batch_requests: int
) -> list[tuple[int, int]]:
    """Return the smallest, the longest and the two fullest (batch, seq) that a lane can form.

    Fullest are the most rows of the longest text, and the longest text of the most rows.

    Example: 3 to 48 tokens, 512 padded tokens, 32 requests ->
    ``[(1, 3), (1, 48), (10, 48), (32, 16)]``.
    """
    min_tokens = min(min_tokens, max_tokens)
    # A text over the budget still runs, alone.
    rows = max(1, min(max_batch_requests, max_batch_tokens // max_tokens))
    most_rows = max(1, min(max_batch_requests, max_batch_tokens // min_tokens))
    longest = max(min_tokens, min(max_tokens, max_batch_tokens // most_rows))
    shapes = {(1, min_tokens), (1, max_tokens), (rows, max_tokens), (most_rows, longest)}
    return sorted(shapes)
