"""The INT8 gate: INT8 becomes the default only if it loses little enough accuracy.

For multi-label texts that is exact match: one label too many or too few and the text is wrong.
"""

from dataclasses import dataclass

from pipeline.contract.bundle import FP32_NAME, INT8_NAME


@dataclass(frozen=True, kw_only=True)
class GateDecision:
    """Both accuracies on one split and what follows from them."""

    split: str
    measure: str
    """What accuracy is called for this task: ``accuracy`` or ``exact match``."""
    rows: int
    fp32_accuracy: float
    int8_accuracy: float
    max_drop: float

    @property
    def drop(self) -> float:
        """Accuracy lost to INT8, 0 to 1; negative when INT8 is better."""
        # Rounded: 0.9 - 0.89 is 0.010000000000000009 and must not fail a limit of 0.01.
        return round(self.fp32_accuracy - self.int8_accuracy, 9)

    @property
    def passed(self) -> bool:
        """Whether the drop is within the limit; a NaN accuracy never passes."""
        return self.drop <= self.max_drop

    @property
    def default_model(self) -> str:
        """Model file that serving loads unless told otherwise."""
        return INT8_NAME if self.passed else FP32_NAME

    @property
    def sentence(self) -> str:
        """What was decided and why, for people."""
        verdict = "INT8 is the default" if self.passed else "FP32 stays the default"
        return (
            f"{verdict}: on {self.rows} {self.split} rows INT8 loses {self.drop:.4f} "
            f"{self.measure} ({self.fp32_accuracy:.4f} → {self.int8_accuracy:.4f}), "
            f"{self.max_drop:g} allowed (export.max_accuracy_drop)"
        )

    def as_figures(self) -> dict[str, object]:
        """Return the decision as it stands in the bundle's manifest."""
        return {
            "split": self.split,
            "measure": self.measure,
            "rows": self.rows,
            "fp32_accuracy": self.fp32_accuracy,
            "int8_accuracy": self.int8_accuracy,
            "drop": self.drop,
            "max_drop": self.max_drop,
            "passed": self.passed,
        }
