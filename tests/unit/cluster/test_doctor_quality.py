"""What doctor says of INT8: from a bundle, and from what a service shows of it."""

import json

import pytest
from bundles import write_tiny_bundle
from slow_bundle import reseal

from cluster.__main__ import main
from cluster.doctor.diagnosis import diagnose
from cluster.doctor.observations import Observations
from cluster.doctor.quality_view import observe_quality

FP32, INT8 = "model.onnx", "model_int8.onnx"
GOOD = {
    "accuracy": {FP32: 0.93, INT8: 0.925},
    "latency_ms": {FP32: {"1x16": 3.0, "32x16": 40.0}, INT8: {"1x16": 2.0, "32x16": 20.0}},
    "gate": {"outcome": "passed", "max_drop": 0.01},
}
WORSE = {**GOOD, "accuracy": {FP32: 0.93, INT8: 0.91}}
ACCEPTED = {**GOOD, "gate": {"outcome": "failed", "max_drop": 0.01}}
SLOW = {**GOOD, "latency_ms": {FP32: {"1x16": 3.0}, INT8: {"1x16": 2.9}}}


def named(quality, served):
    seen = Observations(quality=observe_quality(quality, served=served))
    return [finding.symptom for finding in diagnose(seen)]


@pytest.mark.parametrize("quality", [WORSE, ACCEPTED])
def test_a_drop_of_accuracy_is_named_and_serving_fp32_cures_it(quality):
    assert named(quality, INT8) == ["int8_accuracy"]
    assert named(quality, FP32) == []


def test_slow_int8_is_named_and_serving_fp32_cures_it():
    assert named(SLOW, INT8) == ["int8_slow"]
    assert named(SLOW, FP32) == []


def test_the_gates_own_limit_decides():
    lenient = {**WORSE, "gate": {"outcome": "passed", "max_drop": 0.05}}

    assert named(lenient, INT8) == []
    assert named(GOOD, INT8) == []


@pytest.mark.parametrize(
    "quality",
    [
        None,
        [],
        "x",
        {},
        {"accuracy": 3},
        {"gate": [1]},
        {"latency_ms": {FP32: None}},
        {"accuracy": {FP32: float("inf"), INT8: float("nan")}},
        {"accuracy": {FP32: 10**400, INT8: 0.5}},
    ],
)
def test_what_is_no_figure_is_passed_over(quality):
    assert named(quality, INT8) == []


def test_accuracy_drop_of_a_bundle_is_named_by_the_command_and_cured(tmp_path, capsys):
    folder = write_tiny_bundle(tmp_path / "bundle", with_int8=True).folder
    reseal(folder, quality=WORSE, default_model=INT8)

    assert main(["doctor", "--bundle", str(folder), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    reseal(folder, quality=WORSE, default_model=FP32)

    assert finding["symptom"] == "int8_accuracy"
    assert finding["figures"]["drop"] == pytest.approx(0.02)
    assert "--set model=model.onnx" in finding["cure"]
    assert main(["doctor", "--bundle", str(folder)]) == 0
    assert "healthy" in capsys.readouterr().out
