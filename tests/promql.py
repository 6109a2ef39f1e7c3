"""Which metrics a PromQL expression names; enough of its grammar for our own expressions."""

import re

_STRING = re.compile(r'"[^"]*"')
_SELECTOR = re.compile(r"\{[^}]*\}")
_RANGE = re.compile(r"\[[^]]*\]")
_LABELS = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\w)(?!\s*\()")
_KEYWORDS = {"and", "or", "unless", "bool", "offset"}


def named_metrics(expr: str) -> set[str]:
    """Return the names; ``sum by (a) (rate(b{c="d"}[5m])) / e`` gives ``{"b", "e"}``."""
    for pattern in (_STRING, _SELECTOR, _RANGE, _LABELS):
        expr = pattern.sub(" ", expr)
    return {word for word in _WORD.findall(expr) if word not in _KEYWORDS}
