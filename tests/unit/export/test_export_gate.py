"""The INT8 gate: what passes, what does not, what is too little to tell, and what it says."""

from dataclasses import replace
from datetime import date

import pytest

from pipeline.contract.errors import ConfigError
from pipeline.export.acceptance import Acceptance, check_reason
from pipeline.export.gate import AnswerChanges, GateDecision, Outcome
from pipeline.export.gate_sentence import describe_gate
from pipeline.export.paired_answers import PartDrop
from pipeline.export.paired_bootstrap import PairedDrop, PairedDrops

NAN = float("nan")
ACCEPTED = Acceptance(reason="twice as fast", at=date(2026, 12, 2))


def _drop(first, second, *, upper, std_error=0.002):
    return PairedDrop(
        first=first, second=second, low=-upper, high=upper, upper=upper, std_error=std_error
    )


def _decide(fp32=0.9, int8=0.9, *, upper=0.0, std_error=0.002, macro_upper=0.0, **changes):
    gate = GateDecision(
        split="validation",
        measure="accuracy",
        counted="rows",
        texts=1000,
        resamples=2000,
        drops=PairedDrops(
            accuracy=_drop(fp32, int8, upper=upper, std_error=std_error),
            macro_f1=_drop(0.88, 0.878, upper=macro_upper),
        ),
        max_accuracy_drop=0.01,
        max_macro_f1_drop=None,
        changes=AnswerChanges(
            decisions=1000,
            flips=12,
            losses=7,
            gains=4,
            by_class=(
                PartDrop(name="bad", drop=0.001, rows=600, flips=12),
                PartDrop(name="good", drop=0.004, rows=400, flips=12),
            ),
            by_bucket=(PartDrop(name="17-32", drop=0.01, rows=300, flips=9),),
        ),
    )
    return replace(gate, **changes)


@pytest.mark.parametrize(
    ("fp32", "int8", "upper", "outcome"),
    [
        (0.90, 0.90, 0.009, Outcome.PASSED),
        (0.90, 0.897, 0.01, Outcome.PASSED),
        (0.90, 0.91, -0.002, Outcome.PASSED),
        (0.90, 0.898, 0.0101, Outcome.TOO_FEW_ROWS),
        (0.90, 0.89, 0.02, Outcome.TOO_FEW_ROWS),
        (0.90, 0.889, 0.02, Outcome.FAILED),
        (0.90, 0.80, 0.12, Outcome.FAILED),
        (0.90, NAN, 0.0, Outcome.FAILED),
        (NAN, 0.90, 0.0, Outcome.FAILED),
        (0.90, 0.90, NAN, Outcome.TOO_FEW_ROWS),
    ],
)
def test_int8_is_the_default_only_if_shown_to_lose_little(fp32, int8, upper, outcome):
    decision = _decide(fp32, int8, upper=upper)

    assert decision.outcome is outcome
    assert decision.passed == (outcome is Outcome.PASSED)
    assert decision.default_model == ("model_int8.onnx" if decision.passed else "model.onnx")


@pytest.mark.parametrize(
    ("limit", "macro_upper", "outcome"),
    [
        (None, 0.5, Outcome.PASSED),
        (0.01, 0.009, Outcome.PASSED),
        (0.01, 0.011, Outcome.TOO_FEW_ROWS),
        (0.001, 0.0005, Outcome.FAILED),
        (0.01, NAN, Outcome.TOO_FEW_ROWS),
    ],
)
def test_macro_f1_is_asked_only_if_its_limit_is_set(limit, macro_upper, outcome):
    decision = _decide(macro_upper=macro_upper, max_macro_f1_drop=limit)

    assert decision.outcome is outcome


@pytest.mark.parametrize(
    ("texts", "outcome"),
    [(1, Outcome.TOO_FEW_ROWS), (298, Outcome.TOO_FEW_ROWS), (299, Outcome.PASSED)],
)
def test_texts_without_a_flip_must_be_many_enough_to_rule_losses_out(texts, outcome):
    decision = _decide(upper=0.0, std_error=0.0, texts=texts)

    assert decision.outcome is outcome
    assert decision.texts_needed == (300 if outcome is Outcome.TOO_FEW_ROWS else None)


def test_the_rows_that_would_tell_follow_from_the_spread_of_the_flips():
    # 0.002 lost, 0.008 of room: 1.645 * 0.008 / 0.008 asks for 1.645 ** 2 = 2.7 times the texts.
    decision = _decide(0.90, 0.898, upper=0.015, std_error=0.008)

    assert decision.texts_needed == 2800


@pytest.mark.parametrize(
    ("int8", "upper"), [(0.90, 0.005), (0.85, 0.1), (0.89, 0.02), (0.895, NAN)]
)
def test_no_number_is_named_where_none_would_tell(int8, upper):
    std_error = NAN if upper != upper else 0.002

    assert _decide(0.90, int8, upper=upper, std_error=std_error).texts_needed is None


def test_a_person_may_accept_what_the_gate_does_not_pass():
    decision = _decide(0.90, 0.85, upper=0.1, acceptance=ACCEPTED)

    assert not decision.passed
    assert decision.default_model == "model_int8.onnx"
    assert decision.as_figures()["accepted"] == {"reason": "twice as fast", "at": "2026-12-02"}
    assert "INT8 is the default, accepted (twice as fast) though" in describe_gate(decision)


def test_accepting_what_passed_changes_nothing():
    decision = _decide(upper=0.005, acceptance=ACCEPTED)

    assert decision.accepted is None
    assert decision == replace(_decide(upper=0.005), acceptance=ACCEPTED)
    assert "accepted" not in describe_gate(decision)


def test_a_pass_is_told_in_two_lines_with_the_worst_parts():
    lines = describe_gate(_decide(0.90, 0.898, upper=0.006)).splitlines()

    assert lines == [
        "INT8 is the default: on 1,000 validation rows INT8 loses 0.0020 accuracy "
        "(0.9000 → 0.8980), with 95 % confidence no loss over 0.0060; 0.01 allowed "
        "(export.max_accuracy_drop).",
        "Macro F1: loses 0.0020. Of the rows 12 got another answer: 7 now wrong, 4 now right. "
        "Worst class good: loses 0.0040 F1 (flips: 12, rows: 400). "
        "Worst length 17-32 tokens: loses 0.0100 accuracy (flips: 9, rows: 300).",
    ]


def test_what_int8_does_better_is_called_a_gain():
    text = describe_gate(_decide(0.9, 0.91, upper=-0.002))

    assert (
        "INT8 gains 0.0100 accuracy (0.9000 → 0.9100), with 95 % confidence no loss over -0.0020"
        in text
    )


@pytest.mark.parametrize(
    ("int8", "upper", "verdict", "remedy"),
    [
        (0.898, 0.02, "FP32 stays the default, too few rows to tell: on", "would tell, if drop"),
        (0.89, 0.02, "FP32 stays the default, too few rows", "no number of rows would tell"),
        (0.85, 0.08, "FP32 stays the default: on 1,000", "`textlane export --accept REASON`"),
    ],
)
def test_what_did_not_pass_says_what_can_be_done(int8, upper, verdict, remedy):
    lines = describe_gate(_decide(0.9, int8, upper=upper)).splitlines()

    assert len(lines) == 3
    assert lines[0].startswith(verdict)
    assert remedy in lines[2]


def test_the_limit_of_macro_f1_and_a_hostile_label_are_told():
    hostile = PartDrop(name="\x1b[2J", drop=0.1, rows=5, flips=2)
    changes = replace(_decide().changes, by_class=(hostile,))

    text = describe_gate(_decide(macro_upper=0.004, max_macro_f1_drop=0.01, changes=changes))

    assert (
        "with 95 % confidence no loss over 0.0040; 0.01 allowed (export.max_macro_f1_drop)" in text
    )
    assert r"Worst class '\x1b[2J': loses" in text
    assert "\x1b" not in text


def test_without_flips_no_part_is_the_worst():
    changes = AnswerChanges(decisions=9, flips=0, losses=0, gains=0, by_class=(), by_bucket=())

    decision = _decide(changes=changes)

    assert "Worst" not in describe_gate(decision)
    assert decision.as_figures()["worst_class"] is None


def test_the_figures_hold_what_was_compared():
    figures = _decide(0.9, 0.898, upper=0.006).as_figures()

    assert figures == {
        "outcome": "passed",
        "passed": True,
        "accepted": None,
        "split": "validation",
        "measure": "accuracy",
        "counted": "rows",
        "rows": 1000,
        "texts": 1000,
        "texts_needed": None,
        "resamples": 2000,
        "fp32_accuracy": 0.9,
        "int8_accuracy": 0.898,
        "drop": 0.002,
        "interval_95": [-0.006, 0.006],
        "upper_95": 0.006,
        "max_drop": 0.01,
        "macro_f1": {
            "fp32": 0.88,
            "int8": 0.878,
            "drop": 0.002,
            "interval_95": [-0.0, 0.0],
            "upper_95": 0.0,
            "max_drop": None,
        },
        "flips": 12,
        "losses": 7,
        "gains": 4,
        "worst_class": "good",
        "worst_bucket": "17-32",
        "by_class": {
            "bad": {"drop": 0.001, "rows": 600, "flips": 12},
            "good": {"drop": 0.004, "rows": 400, "flips": 12},
        },
        "by_bucket": {"17-32": {"drop": 0.01, "rows": 300, "flips": 9}},
    }


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("", "a reason is needed"),
        ("   ", "a reason is needed"),
        ("x" * 501, r"the reason may have 500 characters \(got 501\)"),
        ("two\nlines", "may hold no control character"),
        ("\x00", "may hold no control character"),
        ("\u202ereversed", "may hold no control character"),
        ("\ud800", "may hold no control character"),
        ("a\u2028b", "may hold no control character"),
    ],
)
def test_what_is_no_reason_is_refused(reason, message):
    with pytest.raises(ConfigError, match=f"--accept: .*{message}"):
        check_reason(reason)


@pytest.mark.parametrize("reason", ["x" * 500, "schneller – 2×, gut genug", " spaced "])
def test_a_reason_is_kept_as_it_is_written(reason):
    assert check_reason(reason) == reason.strip()
