"""Says in two or three lines what the gate decided and why."""

from pipeline.export.gate import GateDecision, Outcome
from pipeline.export.paired_answers import PartDrop


def describe_gate(gate: GateDecision) -> str:
    """Return the decision for people: verdict, macro F1 and flips, and where it loses most."""
    return "\n".join(
        line for line in (_verdict(gate), _changes(gate), _what_to_do(gate)) if line is not None
    )


def _verdict(gate: GateDecision) -> str:
    accuracy = gate.drops.accuracy
    if gate.passed:
        verdict = "INT8 is the default"
    elif gate.accepted:
        verdict = f"INT8 is the default, accepted ({gate.accepted.reason}) though the gate says "
        verdict += gate.outcome.value
    elif gate.outcome is Outcome.TOO_FEW_ROWS:
        verdict = "FP32 stays the default, too few rows to tell"
    else:
        verdict = "FP32 stays the default"
    return (
        f"{verdict}: on {gate.changes.decisions:,} {gate.split} {gate.counted} INT8 "
        f"{_lost(accuracy.drop)} {gate.measure} ({accuracy.first:.4f} → {accuracy.second:.4f}), "
        f"with 95 % confidence no loss over {gate.upper:.4f}; {gate.max_accuracy_drop:g} allowed "
        "(export.max_accuracy_drop)."
    )


def _changes(gate: GateDecision) -> str:
    changes, macro_f1 = gate.changes, gate.drops.macro_f1
    text = f"Macro F1: {_lost(macro_f1.drop)}"
    if gate.max_macro_f1_drop is not None:
        text += (
            f", with 95 % confidence no loss over {macro_f1.upper:.4f}; {gate.max_macro_f1_drop:g} "
            "allowed (export.max_macro_f1_drop)"
        )
    text += (
        f". Of the {gate.counted} {changes.flips:,} got another answer: {changes.losses:,} now "
        f"wrong, {changes.gains:,} now right."
    )
    if (part := gate.worst_class) is not None:
        text += f" Worst class {_shown(part.name)}: {_described(part, 'F1', gate.counted)}."
    if (part := gate.worst_bucket) is not None:
        text += f" Worst length {part.name} tokens: {_described(part, gate.measure, gate.counted)}."
    return text


def _described(part: PartDrop, measure: str, counted: str) -> str:
    return f"{_lost(part.drop)} {measure} (flips: {part.flips:,}, {counted}: {part.rows:,})"


def _lost(drop: float) -> str:
    return f"gains {-drop:.4f}" if drop < 0 else f"loses {drop:.4f}"


def _shown(name: str) -> str:
    # A label is other people's text; escapes in it would be obeyed by the terminal.
    return name if name.isprintable() else ascii(name)


def _what_to_do(gate: GateDecision) -> str | None:
    if gate.passed or gate.accepted:
        return None
    rest = "`textlane export --accept REASON` makes INT8 the default all the same, on record."
    if gate.outcome is not Outcome.TOO_FEW_ROWS:
        return rest
    if gate.texts_needed is None:
        return f"The drop is at its limit, where no number of rows would tell. {rest}"
    return (
        f"About {gate.texts_needed:,} {gate.split} rows (here {gate.texts:,}) would tell, if drop "
        f"and flips stay like this: raise data.validation_share. {rest}"
    )
