import json
import re

import numpy as np
import pytest

from pipeline.contract.errors import FolderError, MissingFileError
from pipeline.evaluate.charts import (
    draw_buckets,
    draw_confusion,
    draw_lengths,
    draw_loss,
    draw_padding,
)
from pipeline.evaluate.history import read_history
from pipeline.evaluate.label_chart import draw_label_errors
from pipeline.evaluate.measure import Scored, compare_with_baseline, measure_buckets
from pipeline.evaluate.mistakes import shorten
from pipeline.evaluate.report import build_verdict
from pipeline.evaluate.scored_sets import ScoredSets

STEP = {"step": 1, "loss": 0.5, "lr": 1e-4, "tokens": 10, "seconds": 0.1}


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


def test_history_takes_a_repeated_step_once_and_leaves_out_what_is_not_finite(tmp_path):
    rows = [STEP, {**STEP, "step": 2}, {**STEP, "step": 2, "loss": 0.25}]
    lines = [json.dumps(row) for row in [*rows, {**STEP, "step": 3, "loss": float("inf")}]]
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + '\n{"step": 4, "lo')

    assert [(row["step"], row["loss"]) for row in read_history(tmp_path)] == [(1, 0.5), (2, 0.25)]


def test_a_broken_history_is_refused_with_its_line(tmp_path):
    with pytest.raises(MissingFileError, match=r"history\.jsonl"):
        read_history(tmp_path)
    (tmp_path / "history.jsonl").write_text(json.dumps(STEP) + "\n{\n")
    with pytest.raises(FolderError, match="line 2: not JSON"):
        read_history(tmp_path)
    (tmp_path / "history.jsonl").write_text('{"step": 1, "loss": 1}\n')
    with pytest.raises(FolderError, match="line 1: the step lacks lr, tokens, seconds"):
        read_history(tmp_path)


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


def test_very_many_labels_are_drawn_without_names_or_numbers():
    size = 150

    chart = draw_confusion(np.eye(size, dtype=np.int64), [f"label {i}" for i in range(size)])

    assert "label 3" not in chart.svg
    assert len(chart.svg) < 300_000


def test_charts_stand_the_smallest_inputs():
    bucket = {"min_tokens": 1, "max_tokens": 1, "rows": 1, "accuracy": 0.0, "accuracy_95": [0, 1]}

    assert draw_buckets([bucket], 0.0).name == "buckets"
    assert "0.500" in draw_loss([STEP]).svg
    assert draw_lengths(np.array([1, 1]), np.array([1])).caption.endswith("buckets: 1.")
    assert draw_padding(dict.fromkeys(("random", "buckets", "buckets_window"), 0.0)).svg
