"""A tuning as tables for people."""

from serve_app.cost_model import Cell, CostFit
from serve_app.tuning_choice import LaneChoice
from serve_app.tuning_file import Tuning

_BAD_FIT = 0.5


def as_text(tuning: Tuning) -> str:
    """Return what was measured, how well it fits and what was chosen."""
    machine, lengths = tuning.machine, tuning.lengths
    parts = [
        f"{tuning.bundle_version}/{tuning.model} on {machine.usable_cpus} usable CPUs, "
        f"{machine.cpu}, onnxruntime {machine.onnxruntime}",
        f"texts: {lengths.source}, {lengths.shortest} to {lengths.longest} tokens, "
        f"median {lengths.median}",
        *[_grid(tuning, fit) for fit in tuning.fits],
        _choice(tuning),
    ]
    return "\n\n".join(parts) + "\n"


def _grid(tuning: Tuning, fit: CostFit) -> str:
    cells = {(cell.batch, cell.seq): cell for cell in tuning.cells if cell.threads == fit.threads}
    skipped = {(batch, seq) for count, batch, seq in tuning.skipped if count == fit.threads}
    shapes = sorted(cells.keys() | skipped)
    batches, seqs = sorted({shape[0] for shape in shapes}), sorted({shape[1] for shape in shapes})
    head = ["batch × seq", *map(str, seqs)]
    rows = [[str(batch), *[_shown(cells.get((batch, seq))) for seq in seqs]] for batch in batches]
    left_out = f"; - no time for {len(skipped)} of {len(shapes)}" if skipped else ""
    lines = [
        f"ms of a run, {fit.threads} thread{'s' if fit.threads > 1 else ''}{left_out}",
        *_columns([head, *rows]),
        f"fit: {fit.run_s * 1e3:.3g} ms + {fit.token_s * 1e6:.3g} µs a token "
        f"+ {fit.token_seq_s * 1e9:.3g} ns a token and token of its row; "
        f"off by {fit.median_error:.0%} in the median, {fit.worst_error:.0%} at worst",
    ]
    if fit.worst_error > _BAD_FIT:
        lines.append(
            "the worst cell is far off: was the machine busy? Measure again on an idle one."
        )
    return "\n".join(lines)


def _shown(cell: Cell | None) -> str:
    return "-" if cell is None else f"{cell.seconds * 1e3:.3g}"


def _choice(tuning: Tuning) -> str:
    choice, reasons = tuning.choice, tuning.choice.reasons.model_dump()
    lines = ["chosen"]
    for name, reason in reasons.items():
        lines.append(f"  {name} {getattr(choice, name)}: {reason}")
    lines += [
        _lane("short", f"up to {choice.short_max_tokens}", choice.short),
        _lane("long", f"over {choice.short_max_tokens}", choice.long),
        f"  together {choice.texts_per_s:.0f} texts/s with one replica of each lane",
    ]
    return "\n".join(lines)


def _lane(name: str, tokens: str, lane: LaneChoice) -> str:
    shapes = ", ".join(f"{batch}×{seq}" for batch, seq in lane.warm_up)
    return (
        f"  {name} lane, {tokens} tokens: {lane.texts_share:.0%} of the texts, "
        f"{lane.load_s * 1e3:.3g} ms of work for each text that arrives; warms up {shapes}"
    )


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(value.rjust(width) for value, width in zip(row, widths, strict=True))
        for row in rows
    ]
