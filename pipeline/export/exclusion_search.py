"""Finds the shortest list of linears to keep float that lets INT8 pass; pure."""

from collections.abc import Callable, Sequence

Passes = Callable[[Sequence[str]], bool]
"""Names kept float → whether the rest in INT8 passes."""


def find_exclusions(ranked: Sequence[str], passes: Passes) -> tuple[str, ...] | None:
    """Return the names to keep float, most harmful first; empty if INT8 passes as it is.

    Greedy: the shortest head of the ranking that passes is found by doubling and bisection
    (taking it that a longer head passes where a shorter one does), and every name is taken out
    again that it passes without. So no name of the answer can be spared, but a quite different,
    shorter list may exist. None if no head passes; all names is no head, as nothing would be
    INT8.

    Example: ranked ``[a, b, c, d]``, passes with ``b`` kept float -> ``("b",)``.
    """
    if passes(()):
        return ()
    failing, passing = _bracket(len(ranked), lambda size: passes(ranked[:size]))
    if passing is None:
        return None
    while passing - failing > 1:
        middle = (failing + passing) // 2
        if passes(ranked[:middle]):
            passing = middle
        else:
            failing = middle
    kept = list(ranked[:passing])
    # The last is needed: without it the next shorter head is left, which failed.
    for name in reversed(kept[:-1]):
        fewer = [other for other in kept if other != name]
        if passes(fewer):
            kept = fewer
    return tuple(kept)


def _bracket(num_names: int, passes: Callable[[int], bool]) -> tuple[int, int | None]:
    failing, size = 0, 1
    while failing < num_names - 1:
        size = min(size, num_names - 1)
        if passes(size):
            return failing, size
        failing, size = size, 2 * size
    return failing, None
