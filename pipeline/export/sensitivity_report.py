"""What exploring the sensitivity to INT8 found, for people and as figures; no measuring here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What INT8 changes on the probed validation rows, against the float model."""

    name: str
    """Linear, as ``export.keep_float`` takes it."""
    mean_error: float
    """Mean absolute difference of the logits; infinite (in figures: None) if one is not finite."""
    label_flips: int
    """Rows (words, for token labels) that get another label or set of labels."""
    accuracy_change: float
    """Accuracy in INT8 less that in float, -1 to 1."""

    def as_figures(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {
            "name": self.name,
            "mean_error": self.mean_error if math.isfinite(self.mean_error) else None,
            "label_flips": self.label_flips,
            "accuracy_change": self.accuracy_change,
        }


@dataclass(frozen=True, kw_only=True)
class SensitivityReport:
    """Every linear alone in INT8, most harmful first, and what to keep float."""

    activations: str
    """What one scale of the activations is for: ``tensor`` or ``row``."""
    rows: int
    """Validation rows that the effects were measured on."""
    decisions: int
    """Rows (words, for token labels) whose label could flip."""
    effects: Sequence[Effect]
    together: Effect | None
    """All linears in INT8; None if there is nothing to quantise."""
    keep_float: Sequence[str] | None
    """Names to keep float for the gate to pass; None if no list of them passes."""

    @property
    def sentence(self) -> str:
        """What to do, for people."""
        if self.together is None:
            return "There is no matrix product to quantise beside those that stay float anyway."
        if self.keep_float is None:
            return (
                "No list passes the gate: even with only the least harmful linear in INT8 it "
                "does not. Raise export.max_accuracy_drop, add validation rows (few leave the "
                "gate's interval wide), or set export.int8 to false."
            )
        if not self.keep_float:
            return "Nothing needs to be kept float: INT8 passes the gate as it is."
        kept = ",".join(self.keep_float)
        return (
            f"INT8 passes the gate with {len(self.keep_float)} of {len(self.effects)} linears "
            f'kept float; set it with\n  --set "export.keep_float=[{kept}]"'
        )

    def as_text(self) -> str:
        """Return a table and what to do."""
        if self.together is None:
            return self.sentence
        width = max(len(effect.name) for effect in (*self.effects, self.together))
        head = (
            f"{'linear':<{width}}  {'mean |Δlogit|':>13}  {'labels changed':>14}  {'accuracy':>8}"
        )
        lines = [
            f"Each linear alone in INT8 (export.int8_activations={self.activations}), on "
            f"{self.rows} validation rows, against the float model:",
            "",
            head,
            *(self._line(effect, width) for effect in (*self.effects, self.together)),
            "",
            self.sentence,
        ]
        return "\n".join(lines)

    def as_figures(self) -> dict[str, Any]:
        """Return the report as it stands in sensitivity.json."""
        return {
            "activations": self.activations,
            "rows": self.rows,
            "decisions": self.decisions,
            "linears": [effect.as_figures() for effect in self.effects],
            "together": self.together.as_figures() if self.together else None,
            "keep_float": None if self.keep_float is None else list(self.keep_float),
            "sentence": self.sentence,
        }

    def _line(self, effect: Effect, width: int) -> str:
        flips = f"{effect.label_flips} of {self.decisions}"
        return (
            f"{effect.name:<{width}}  {effect.mean_error:>13.2g}  {flips:>14}  "
            f"{effect.accuracy_change:>+8.4f}"
        )
