"""Symptoms of an INT8 model: it answers worse, or no faster."""

from collections.abc import Iterator

from cluster.doctor.observations import Observations
from cluster.doctor.symptom import Signs, Symptom

FP32_NAME, INT8_NAME = "model.onnx", "model_int8.onnx"
_DROP = 0.01
_GAIN = 1.1


def _find_int8_accuracy(seen: Observations) -> Iterator[Signs]:
    quality = seen.quality
    if quality is None or quality.served != INT8_NAME:
        return
    fp32, int8 = (quality.accuracy.get(name) for name in (FP32_NAME, INT8_NAME))
    limit = _DROP if quality.max_drop is None else quality.max_drop
    failed = quality.gate_outcome not in (None, "passed")
    drop = fp32 - int8 if fp32 is not None and int8 is not None else None
    if failed or (drop is not None and drop > limit):
        figures: dict[str, float | str] = {"gate": quality.gate_outcome or "none", "limit": limit}
        if fp32 is not None and int8 is not None:
            figures |= {"FP32": fp32, "INT8": int8, "drop": fp32 - int8}
        yield Signs(where=INT8_NAME, figures=figures)


def _find_int8_slow(seen: Observations) -> Iterator[Signs]:
    quality = seen.quality
    if quality is None or quality.served != INT8_NAME:
        return
    fp32, int8 = (quality.latency_ms.get(name, {}) for name in (FP32_NAME, INT8_NAME))
    gains = {shape: fp32[shape] / int8[shape] for shape in fp32 if int8.get(shape, 0.0) > 0}
    if gains and max(gains.values()) < _GAIN:
        shape = max(gains, key=lambda name: gains[name])
        yield Signs(
            where=INT8_NAME,
            figures={
                "best gain": gains[shape],
                "at rows x tokens": shape,
                "FP32, ms": fp32[shape],
                "INT8, ms": int8[shape],
            },
        )


INT8 = (
    Symptom(
        name="int8_accuracy",
        area="INT8",
        seen="The INT8 model that is served answers worse than FP32.",
        evidence="quality.accuracy and quality.gate of the bundle's manifest, also in /v1/model",
        threshold=f"the gate did not pass, or the test drop is over its limit ({_DROP:g} where it "
        "has none)",
        chosen="The gate's own limit, export.max_accuracy_drop; its default is chosen.",
        cure="textlane serve --set model=model.onnx, and textlane export --config JOB "
        "--set export.max_accuracy_drop=0.01 to let the gate decide again",
        cure_example={},
        why="FP32 is in the same bundle; export leaves sensitive nodes out of INT8 where that "
        "helps (pipeline/export/README.md).",
        drill="pytest tests/unit/cluster/test_doctor_quality.py -k accuracy",
        find=_find_int8_accuracy,
    ),
    Symptom(
        name="int8_slow",
        area="INT8",
        seen="The INT8 model that is served is not faster than FP32.",
        evidence="quality.latency_ms of the bundle's manifest, FP32 / INT8 of each shape",
        threshold=f"under {_GAIN:g} at every shape",
        chosen="Measured (tests/perf/RESULTS.md): MiniLM gains 1.9 to 3.0 with AVX512-VNNI; a CPU "
        "without it may gain nothing.",
        cure="textlane serve --set model=model.onnx",
        cure_example={},
        why="Where INT8 gains no time, its loss of accuracy buys nothing.",
        drill="pytest tests/unit/cluster/test_doctor_quality.py -k slow",
        find=_find_int8_slow,
    ),
)
