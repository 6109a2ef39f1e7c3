"""The INT8 gate: INT8 becomes the default only if it is shown to lose little enough.

Shown means: with 95 % confidence (one-sided, paired bootstrap over texts) accuracy, and macro
F1 if a limit for it is set, drop by no more than the limit. Accuracy of multi-label texts is
exact match: one label too many or too few and the text is wrong.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from pipeline.contract.bundle import FP32_NAME, INT8_NAME
from pipeline.export.acceptance import Acceptance
from pipeline.export.paired_answers import PartDrop, worst_part
from pipeline.export.paired_bootstrap import PairedDrop, PairedDrops

_NORMAL_95_ONE_SIDED = 1.6448536269514722
_UNSEEN = 0.05
"""How likely what is ruled out would have been, had it been true."""


class Outcome(StrEnum):
    """What the gate found."""

    PASSED = "passed"
    FAILED = "failed"
    """The drop itself is over the limit, or is not a number."""
    TOO_FEW_ROWS = "too few rows to tell"
    """The drop is within the limit; what it may be with 95 % confidence is not."""


@dataclass(frozen=True, kw_only=True)
class AnswerChanges:
    """Which answers INT8 changed, and where."""

    decisions: int
    """Rows, or labelled words of them."""
    flips: int
    """Decisions in which INT8 gives another answer than FP32."""
    losses: int
    """Flips from right to wrong."""
    gains: int
    """Flips from wrong to right."""
    by_class: tuple[PartDrop, ...]
    by_bucket: tuple[PartDrop, ...]


@dataclass(frozen=True, kw_only=True)
class GateDecision:
    """What INT8 loses on one split and what follows from it."""

    split: str
    measure: str
    """What accuracy is called for this task: ``accuracy`` or ``exact match``."""
    counted: str
    """What a decision is for people: ``rows`` or ``words``."""
    texts: int
    """Texts that were resampled: the rows of the split, windows of one text together."""
    resamples: int
    drops: PairedDrops
    """From FP32 to INT8."""
    max_accuracy_drop: float
    max_macro_f1_drop: float | None
    changes: AnswerChanges
    acceptance: Acceptance | None = None
    """Given by a person; counts only where the gate did not pass."""

    @property
    def upper(self) -> float:
        """What accuracy may drop by with 95 % confidence: the bootstrap's end or more.

        A bootstrap draws only what it saw: without a single loss it is sure that there is
        none, be it of five texts. So the end is at least as far above the drop as the
        losses that may have stayed unseen, 1 - 0.05 ** (1 / texts), about 3 / texts
        (Hanley and Lippman-Hand 1983, "If Nothing Goes Wrong, Is Everything All Right?",
        JAMA 249). With four flips or more the bootstrap's end is beyond it anyway.
        """
        drop = self.drops.accuracy
        unseen = 1 - _UNSEEN ** (1 / self.texts) if self.texts else 1.0
        return round(max(drop.upper, drop.drop + unseen), 9)

    @property
    def outcome(self) -> Outcome:
        """What was found; a figure that is not a number never passes."""
        found = [_judge(self.drops.accuracy.drop, self.upper, self.max_accuracy_drop)]
        if self.max_macro_f1_drop is not None:
            macro_f1 = self.drops.macro_f1
            found.append(_judge(macro_f1.drop, macro_f1.upper, self.max_macro_f1_drop))
        return next(
            (out for out in (Outcome.FAILED, Outcome.TOO_FEW_ROWS) if out in found), Outcome.PASSED
        )

    @property
    def passed(self) -> bool:
        """Whether INT8 was shown to lose no more than the limits."""
        return self.outcome is Outcome.PASSED

    @property
    def accepted(self) -> Acceptance | None:
        """The person's decision that overrides the gate; None where the gate passed."""
        return None if self.passed else self.acceptance

    @property
    def default_model(self) -> str:
        """Model file that serving loads unless told otherwise."""
        return INT8_NAME if self.passed or self.accepted else FP32_NAME

    @property
    def texts_needed(self) -> int | None:
        """About how many texts would tell if drop and flips stay as they are.

        None if the gate could tell, or if a drop is at its limit, where none are enough.
        """
        if self.outcome is not Outcome.TOO_FEW_ROWS:
            return None
        room = self.max_accuracy_drop - self.drops.accuracy.drop
        if room <= 0:
            return None
        needed = [math.log(_UNSEEN) / math.log1p(-room) if room < 1 else 1.0]
        needed.append(self._texts_for(self.drops.accuracy, self.max_accuracy_drop))
        if self.max_macro_f1_drop is not None:
            needed.append(self._texts_for(self.drops.macro_f1, self.max_macro_f1_drop))
        most = max(needed)
        return _round_up(max(most, self.texts + 1)) if math.isfinite(most) else None

    def _texts_for(self, drop: PairedDrop, limit: float) -> float:
        # The standard error shrinks with the root of the texts.
        room = limit - drop.drop
        if not room > 0 or math.isnan(drop.std_error):
            return math.inf
        return self.texts * (_NORMAL_95_ONE_SIDED * drop.std_error / room) ** 2

    @property
    def worst_class(self) -> PartDrop | None:
        """The class that loses most F1; None if no answer changed."""
        return worst_part(self.changes.by_class)

    @property
    def worst_bucket(self) -> PartDrop | None:
        """The length bucket that loses most accuracy; None if no answer changed."""
        return worst_part(self.changes.by_bucket)

    def as_figures(self) -> dict[str, object]:
        """Return the decision as it stands in the bundle's manifest."""
        accuracy, changes = self.drops.accuracy, self.changes
        worst_class, worst_bucket = self.worst_class, self.worst_bucket
        return {
            "outcome": self.outcome.value,
            "passed": self.passed,
            "accepted": self.accepted.as_figures() if self.accepted else None,
            "split": self.split,
            "measure": self.measure,
            "counted": self.counted,
            "rows": changes.decisions,
            "texts": self.texts,
            "texts_needed": self.texts_needed,
            "resamples": self.resamples,
            "fp32_accuracy": accuracy.first,
            "int8_accuracy": accuracy.second,
            **_figures_of(accuracy, upper=self.upper),
            "max_drop": self.max_accuracy_drop,
            "macro_f1": {
                "fp32": self.drops.macro_f1.first,
                "int8": self.drops.macro_f1.second,
                **_figures_of(self.drops.macro_f1, upper=self.drops.macro_f1.upper),
                "max_drop": self.max_macro_f1_drop,
            },
            "flips": changes.flips,
            "losses": changes.losses,
            "gains": changes.gains,
            "worst_class": worst_class.name if worst_class else None,
            "worst_bucket": worst_bucket.name if worst_bucket else None,
            "by_class": {part.name: part.as_figures() for part in changes.by_class},
            "by_bucket": {part.name: part.as_figures() for part in changes.by_bucket},
        }


def _judge(drop: float, upper: float, limit: float) -> Outcome:
    # Written so that a NaN, which compares as nothing, does not pass.
    if not drop <= limit:
        return Outcome.FAILED
    return Outcome.PASSED if upper <= limit else Outcome.TOO_FEW_ROWS


def _figures_of(drop: PairedDrop, *, upper: float) -> dict[str, object]:
    return {"drop": drop.drop, "interval_95": [drop.low, drop.high], "upper_95": upper}


def _round_up(count: float) -> int:
    """Return a count of two significant digits, not below: 1,234 -> 1,300."""
    step: int = 10 ** max(0, len(str(int(count))) - 2)
    return math.ceil(count / step) * step
