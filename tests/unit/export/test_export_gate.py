import pytest

from pipeline.export.gate import GateDecision


def _decide(fp32: float, int8: float, *, max_drop: float = 0.01) -> GateDecision:
    return GateDecision(
        split="validation",
        measure="accuracy",
        rows=200,
        fp32_accuracy=fp32,
        int8_accuracy=int8,
        max_drop=max_drop,
    )


@pytest.mark.parametrize(("fp32", "int8"), [(0.90, 0.89), (0.90, 0.90), (0.90, 0.93)])
def test_int8_is_the_default_within_the_limit(fp32: float, int8: float) -> None:
    decision = _decide(fp32, int8)

    assert decision.passed
    assert decision.default_model == "model_int8.onnx"


@pytest.mark.parametrize(("fp32", "int8"), [(0.90, 0.885), (0.90, float("nan"))])
def test_fp32_stays_the_default_over_the_limit(fp32: float, int8: float) -> None:
    decision = _decide(fp32, int8)

    assert not decision.passed
    assert decision.default_model == "model.onnx"
    assert "FP32 stays the default" in decision.sentence


def test_the_figures_hold_what_was_compared() -> None:
    assert _decide(0.9, 0.88).as_figures() == {
        "split": "validation",
        "measure": "accuracy",
        "rows": 200,
        "fp32_accuracy": 0.9,
        "int8_accuracy": 0.88,
        "drop": 0.02,
        "max_drop": 0.01,
        "passed": False,
    }
