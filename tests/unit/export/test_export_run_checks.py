"""What verify asks of a model's runs, with models whose distance is known."""

import numpy as np
import pytest
from verify_samples import (
    ATOL,
    INT8_ERROR,
    SHIFT,
    answer,
    answer_off_by,
    answer_shifting_by,
    build_cells,
    build_manifest,
)

from pipeline.contract.errors import ExportError
from pipeline.export.grid_figures import describe_models, measure_errors
from pipeline.export.run_checks import check_against_torch, check_finite, check_shift


def test_mean_and_largest_distance_are_of_all_logits() -> None:
    def run(input_ids, mask):
        logits = answer(input_ids, mask)
        if input_ids.shape == (2, 8):
            logits[1, 0] += 0.5
        return logits

    errors = measure_errors(run, build_cells(), name="model.onnx")

    assert errors.largest == pytest.approx(0.5)
    assert errors.mean == pytest.approx(0.5 / (2 * (1 + 2 + 4)))
    assert errors.worst_shape == (2, 8)


def test_the_manifest_keeps_every_models_shift_and_int8s_distance() -> None:
    models = {"model.onnx": answer, "model_int8.onnx": answer_off_by(0.25)}

    figures = describe_models(models, build_cells(), pad_token_id=0, is_multi_label=False)

    unmoved = {"logit": 0.0, "probability": 0.0}
    assert figures["model.onnx"] == {"batch_shift": unmoved}
    assert figures["model_int8.onnx"] == {
        "batch_shift": unmoved,
        "mean_error": pytest.approx(0.25, abs=1e-6),
    }


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("model.onnx", ATOL), ("model_fp16.onnx", 2 * ATOL), ("model_int8.onnx", 1.25 * INT8_ERROR)],
)
def test_every_model_has_its_own_distance_from_torch(name: str, allowed: float) -> None:
    near, far = answer_off_by(0.95 * allowed), answer_off_by(1.05 * allowed)
    cells, manifest = build_cells(), build_manifest()

    assert check_against_torch(near, cells, manifest, name=name).startswith(f"{name}: ")
    with pytest.raises(ExportError, match=rf"{name}: its .* error from torch's logits on 3 stored"):
        check_against_torch(far, cells, manifest, name=name)


def test_logits_that_are_not_finite_never_pass() -> None:
    run = answer_off_by(float("nan"))

    with pytest.raises(ExportError, match=r"model\.onnx: the logits are not all finite"):
        check_against_torch(run, build_cells(), build_manifest(), name="model.onnx")


def test_an_answer_may_move_with_its_batch_as_far_as_at_export() -> None:
    near, far = answer_shifting_by(1.2 * SHIFT), answer_shifting_by(1.3 * SHIFT)
    cells, manifest = build_cells(), build_manifest()

    line = check_shift(near, cells, manifest, name="model_int8.onnx")

    assert line.startswith("model_int8.onnx: batch shift 0.12 on the stored texts, 0.1 at export")
    with pytest.raises(ExportError, match=r"model_int8\.onnx: a logit moves with its batch by"):
        check_shift(far, cells, manifest, name="model_int8.onnx")


def test_a_figure_that_the_manifest_lacks_is_named() -> None:
    manifest = build_manifest(quality={"parity": {"atol": ATOL}, "reference": {}})

    with pytest.raises(ExportError, match=r"quality → reference → model_int8\.onnx'"):
        check_against_torch(answer, build_cells(), manifest, name="model_int8.onnx")


@pytest.mark.parametrize("value", ["0.1", True, None])
def test_a_figure_that_is_no_number_is_refused(value: object) -> None:
    manifest = build_manifest(quality={"parity": {"atol": value}})

    with pytest.raises(ExportError, match="quality → parity → atol must be a number"):
        check_against_torch(answer, build_cells(), manifest, name="model.onnx")


def test_whole_batches_are_run_with_the_highest_id() -> None:
    seen = []

    def run(input_ids, mask):
        seen.append((input_ids.shape, int(input_ids.max())))
        return answer(input_ids, mask)

    check_finite(run, build_manifest(), vocab_size=50, name="model.onnx")

    assert seen == [((1, 16), 49), ((2, 16), 49), ((32, 16), 49), ((1, 16), 49)]


def test_a_run_that_fails_names_the_input() -> None:
    def run(input_ids, mask):
        raise RuntimeError("out of range")

    with pytest.raises(ExportError, match=r"the model run failed: out of range \(got \[1, 16\]\)"):
        check_finite(run, build_manifest(), vocab_size=50, name="model.onnx")


def test_logits_of_another_number_of_labels_are_refused() -> None:
    def run(input_ids, mask):
        return np.zeros((len(input_ids), 3), dtype=np.float32)

    with pytest.raises(ExportError, match=r"logits must have the shape \(1, 2\)"):
        check_finite(run, build_manifest(), vocab_size=50, name="model.onnx")


@pytest.mark.parametrize("value", [None, "x", -1, {}, {"logit": 0.0}, {"logit": -1.0}])
def test_a_recorded_shift_that_is_none_is_named(value: object) -> None:
    quality = build_manifest().quality
    quality["reference"] = {"model.onnx": {"batch_shift": value}}
    manifest = build_manifest(quality=quality)

    with pytest.raises(ExportError, match=r"quality → reference → model\.onnx → batch_shift must"):
        check_shift(answer, build_cells(), manifest, name="model.onnx")
