import re

import numpy as np
import pytest

from pipeline.evaluate.charts import (
    draw_buckets,
    draw_calibration,
    draw_lengths,
    draw_padding,
    shorten_label,
)
from pipeline.evaluate.confusion_chart import draw_confusion
from pipeline.evaluate.label_chart import draw_label_errors
from pipeline.evaluate.measure import compare_with_baseline, measure_buckets, measure_quality
from pipeline.evaluate.mistakes import shorten
from pipeline.evaluate.report import build_verdict, describe_weights
from pipeline.evaluate.scored_positions import Scored
from pipeline.evaluate.scored_sets import ScoredSets


def scored(true, predicted, rows=None):
    count = len(true)
    return Scored(
        rows=np.arange(count) if rows is None else np.array(rows),
        positions=np.zeros(count, dtype=np.int64),
        true=np.array(true),
        predicted=np.array(predicted),
        probabilities=np.full((count, 2), 0.5),
    )


def metrics(*, accuracy=0.9, baseline=None, task="sequence_classification"):
    return {
        "task": task,
        "accuracy": accuracy,
        "accuracy_95": [0.88, 0.92],
        "scored": 1000,
        "baseline": baseline,
    }


def sets(true, scores):
    return ScoredSets(true=np.array(true, dtype=bool), scores=np.array(scores))


def rival(accuracy, p_value):
    return {"name": "Rival", "accuracy": accuracy, "macro_f1": 0.5, "p_value": p_value}


def test_buckets_count_rows_and_words_apart_and_leave_out_empty_ones():
    # Row 0 has two words, row 1 has one; the middle bucket has no row.
    found = measure_buckets(
        scored([0, 1, 1], [0, 0, 1], rows=[0, 0, 1]), np.array([3, 9]), np.array([4, 6, 9])
    )

    shown = [
        (b["min_tokens"], b["max_tokens"], b["rows"], b["scored"], b["accuracy"]) for b in found
    ]
    assert shown == [(1, 4, 1, 2, 0.5), (7, 9, 1, 1, 1.0)]


def test_every_bucket_has_the_figures_that_all_rows_have():
    judged = scored([0, 1, 1, 0], [0, 0, 1, 0])

    (all_in_one,) = measure_buckets(judged, np.array([3, 9, 2, 1]), np.array([9]))

    whole = measure_quality(judged, ["a", "b"])
    names = ("scored", "accuracy", "accuracy_95", "macro_f1", "micro_f1", "calibration_error")
    assert {name: all_in_one[name] for name in names} == {name: whole[name] for name in names}
    assert all_in_one["entity_f1"] is None


def test_buckets_count_the_entities_of_their_own_rows():
    tags = [(["B-A", "O"], ["B-A", "O"]), (["B-A"], ["O"])]
    words = scored([0, 1, 0], [0, 1, 1], rows=[0, 0, 1])

    found = measure_buckets(words, np.array([4, 8]), np.array([4, 8]), tags=tags)

    assert [bucket["entity_f1"]["f1"] for bucket in found] == [1.0, 0.0]
    assert [bucket["entity_f1"]["support"] for bucket in found] == [1, 1]


def test_the_calibration_of_sets_is_that_of_the_labels_given():
    judged = sets([[1, 0, 0], [0, 1, 0]], [[0.9, 0.1, 0.7], [0.2, 0.4, 0.0]])

    confidence, is_right = judged.answers()

    assert confidence.tolist() == [0.9, 0.7]
    assert is_right.tolist() == [True, False]


def test_sets_without_a_label_given_have_no_calibration():
    found = measure_quality(sets([[1, 0]], [[0.1, 0.2]]), ["a", "b"])

    assert found["calibration_error"] is None
    assert found["calibration"] == []


def test_baseline_comparison_counts_who_alone_is_right():
    found = compare_with_baseline(
        scored([0, 0, 1, 1], [0, 0, 1, 0]), np.array([0, 1, 0, 1]), name="Rival", num_labels=2
    )

    assert (found["only_model_right"], found["only_baseline_right"]) == (2, 1)
    assert found["accuracy"] == found["macro_f1"] == 0.5
    assert found["p_value"] == 1.0


@pytest.mark.parametrize(
    ("baseline", "tone", "detail"),
    [
        (None, "plain", "95 % interval 88.0% to 92.0%; no baseline was asked for."),
        (rival(0.8, 1e-9), "better", "10.0 points above Rival (80.0%)"),
        (rival(0.95, 0.01), "worse", "5.0 points below Rival (95.0%)"),
        (rival(0.89, 0.4), "even", "which may be luck (p = 0.400)"),
    ],
)
def test_the_verdict_says_better_worse_or_luck(baseline, tone, detail):
    verdict = build_verdict(metrics(baseline=baseline))

    assert verdict.headline == "90.0% of 1,000 test texts are right"
    assert verdict.tone == tone
    assert detail in verdict.detail


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "Measured: the last weights, after step 9 of 9."),
        ({"is_best": True}, "validation loss, which are also the last, after step 9 of 9."),
        (
            {"step": 6, "kind": "rolling", "is_best": True},
            "the best weights by validation loss, after step 6 of 9.",
        ),
        ({"step": 6, "is_best": False}, "the last weights, after step 6 of 9."),
    ],
    ids=["last", "last and best", "best", "stopped early"],
)
def test_the_page_says_which_weights_were_measured(changes, text):
    weights = {"step": 9, "total_steps": 9, "kind": "final", "is_best": False}
    rest = {"best_metric": "loss", "validation": None}

    assert text in describe_weights({**weights, **rest, **changes}, measure="accuracy")


def test_the_page_says_how_good_validation_found_the_weights():
    figures = {"loss": 0.25, "accuracy": 0.9, "macro_f1": 0.8, "entity_f1": 0.5}
    weights = {"step": 1, "total_steps": 2, "kind": "rolling", "is_best": True}
    rest = {"best_metric": "accuracy", "validation": figures}

    text = describe_weights({**weights, **rest}, measure="exact match")

    assert "the best weights by validation exact match, after" in text
    assert text.endswith("they gave loss 0.250, exact match 90.0%, entity F1 50.0%.")


def test_a_set_is_right_as_a_whole_and_as_sure_as_its_surest_wrong_label():
    scored = sets(
        [[1, 0, 0], [0, 0, 0], [1, 1, 0]], [[0.5, 0.4, 0.1], [0.9, 0.2, 0.6], [0.1, 0, 0]]
    )

    assert scored.is_right.tolist() == [True, False, False]
    assert scored.confidence.tolist() == pytest.approx([0.0, 0.9, 1.0])
    named = [(scored.name_true(row, "abc"), scored.name_predicted(row, "abc")) for row in range(3)]
    assert named == [("a", "a"), ("(no label)", "a, c"), ("a, b", "(no label)")]


def test_buckets_of_sets_count_exact_matches():
    scored = sets([[1, 0], [0, 1]], [[0.9, 0.1], [0.9, 0.9]])

    found = measure_buckets(scored, np.array([3, 9]), np.array([4, 9]))

    assert [(b["rows"], b["scored"], b["accuracy"]) for b in found] == [(1, 1, 1.0), (1, 1, 0.0)]


@pytest.mark.slow
def test_the_label_chart_counts_found_missed_and_wrongly_given_texts():
    row = {"label": "<b>", "precision": 3 / 5, "recall": 3 / 7, "support": 7, "predicted": 5}
    calm = {"label": "calm", "precision": 1.0, "recall": 1.0, "support": 4, "predicted": 4}

    chart = draw_label_errors([calm] * 40 + [row])

    assert "<b>" not in chart.svg
    assert "11 labels with fewer errors are not drawn" in chart.caption
    assert chart.svg.index("&lt;b&gt;") < chart.svg.index("calm")
    assert all(word in chart.svg for word in ("found", "missed", "wrongly given"))


def test_a_text_is_cut_at_a_blank_and_marked():
    assert shorten("short", 10) == "short"
    assert shorten("one two three", 10) == "one two…"
    assert shorten("x" * 50, 10) == "x" * 9 + "…"
    assert all(len(shorten("ab " * n, 20)) <= 20 for n in range(30))


def test_a_chart_takes_its_colours_from_the_page_and_names_its_ids():
    chart = draw_padding({"random": 0.3, "buckets": 0.1, "buckets_window": 0.0})

    assert chart.svg.startswith("<svg ")
    assert 'role="img" aria-label="Padding"' in chart.svg
    assert "#a1000" not in chart.svg
    assert "var(--ink)" in chart.svg
    ids = re.findall(r'\bid="([^"]+)"', chart.svg)
    assert all(name.startswith("padding-") for name in ids)
    assert len(ids) == len(set(ids))
    assert "30.0%" in chart.svg


def test_a_chart_is_the_same_every_time():
    confusion = np.array([[3, 1], [0, 4]])

    first, second = (draw_confusion(confusion, ["a", "b"]) for _ in range(2))

    assert first == second


@pytest.mark.parametrize(
    "label", ["<b>&amp;", "$\\frac{", "名前", 'id="x"', "#a10001", "x" * 300, "new\nline"]
)
def test_a_chart_escapes_any_label(label):
    chart = draw_confusion(np.array([[3, 1], [0, 4]]), [label, "other"])

    assert "<b>" not in chart.svg
    assert "other" in chart.svg


@pytest.mark.slow
def test_of_very_many_labels_the_most_confused_are_drawn_with_their_names():
    confusion = 9 * np.eye(150, dtype=np.int64)
    confusion[7, 140] = 3

    chart = draw_confusion(confusion, [f"label {i}." for i in range(150)])

    assert chart.is_wide
    assert "Only the 100 of 150 labels with the most errors" in chart.caption
    assert "label 7." in chart.svg
    assert "label 140." in chart.svg
    assert "label 149." not in chart.svg
    assert len(chart.svg) < 300_000


def test_a_long_label_loses_its_middle():
    assert shorten_label("short", 15) == "short"
    assert shorten_label("card_payment_wrong_exchange_rate", 15) == "card_pa…ge_rate"


def test_the_calibration_chart_says_the_gap_and_stands_one_bin():
    one = {"low": 0.8, "high": 1.0, "count": 3, "confidence": 0.9, "accuracy": 1.0}

    chart = draw_calibration([one], 0.1, unit="labels given")

    assert chart.caption.endswith("Mean gap: 10.0%.")
    assert "labels given" in chart.svg


@pytest.mark.slow
def test_charts_stand_the_smallest_inputs():
    bucket = {"min_tokens": 1, "max_tokens": 1, "rows": 1, "accuracy": 0.0, "accuracy_95": [0, 1]}

    assert draw_buckets([bucket], 0.0).name == "buckets"
    assert draw_lengths(np.array([1, 1]), np.array([1])).caption.endswith("buckets: 1.")
    assert draw_padding(dict.fromkeys(("random", "buckets", "buckets_window"), 0.0)).svg
