import json
import shutil
import sys
from html.parser import HTMLParser

import pytest
from log_samples import validation_row, write_lines

from pipeline.contract.errors import AlteredFileError, ConfigError, FolderError
from pipeline.contract.folder import read_manifest, sha256_file, write_manifest
from pipeline.evaluate.run import evaluate

NAMES = ["manifest.json", "metrics.json", "report.html"]


class Page(HTMLParser):
    """Collects tags, addresses, ids and texts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.addresses, self.ids, self.texts = set(), [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action"):
                self.addresses.append(value)
            elif name == "id":
                self.ids.append(value)

    def handle_data(self, data):
        self.texts.append(data)


def read_metrics(job):
    return json.loads((job.report_dir / "metrics.json").read_text())


def change_checkpoint(job, **changes):
    write_manifest(job.checkpoint_dir, {**read_manifest(job.checkpoint_dir), **changes})


@pytest.mark.slow
def test_a_sequence_job_gets_figures_that_agree_with_each_other(finished):
    job, result = finished()

    assert not result.is_reused
    assert sorted(path.name for path in result.folder.iterdir()) == NAMES
    metrics = read_metrics(job)
    confusion = metrics["confusion"]
    assert (metrics["task"], metrics["split"], metrics["rows"]) == (
        "sequence_classification",
        "test",
        16,
    )
    assert sum(map(sum, confusion)) == metrics["scored"] == 16
    assert metrics["accuracy"] == (confusion[0][0] + confusion[1][1]) / 16
    assert sum(bucket["rows"] for bucket in metrics["per_bucket"]) == 16
    hits = sum(bucket["accuracy"] * bucket["scored"] for bucket in metrics["per_bucket"])
    assert hits == pytest.approx(metrics["accuracy"] * 16)
    assert metrics["entity_f1"] is metrics["baseline"] is metrics["micro_f1"] is None
    assert sum(each["count"] for each in metrics["calibration"]) == 16
    assert len(metrics["mistakes"]) == min(10, 16 - round(hits))
    confidences = [mistake["confidence"] for mistake in metrics["mistakes"]]
    assert confidences == sorted(confidences, reverse=True)


@pytest.mark.slow
def test_a_token_job_counts_words_and_entities(finished):
    job, result = finished("token_classification")

    metrics = read_metrics(job)
    assert metrics["scored"] > metrics["rows"] == 16
    assert set(metrics["entity_f1"]["by_type"]) == {"LOC", "PER"}
    in_buckets = [bucket["entity_f1"]["support"] for bucket in metrics["per_bucket"]]
    assert sum(in_buckets) == metrics["entity_f1"]["support"]
    assert "entity F1" in result.summary
    mistake = metrics["mistakes"][0]
    assert mistake["word"] in mistake["text"].split(" ")
    assert (
        f"of {metrics['scored']} test words are right"
        in (job.report_dir / "report.html").read_text()
    )


@pytest.mark.slow
def test_a_multi_label_job_is_measured_by_whole_sets_and_by_label(finished):
    job, result = finished("multi_label_classification")

    metrics = read_metrics(job)
    assert metrics["scored"] == metrics["rows"] == 16
    assert metrics["confusion"] is metrics["baseline"] is None
    given = sum(row["predicted"] for row in metrics["per_class"])
    assert sum(each["count"] for each in metrics["calibration"]) == given
    hits = sum(bucket["accuracy"] * bucket["scored"] for bucket in metrics["per_bucket"])
    assert hits == pytest.approx(metrics["accuracy"] * 16)
    assert [row["label"] for row in metrics["per_class"]] == ["<b>no</b> & $x_", "yes", "maybe"]
    assert result.summary.startswith(f"exact match {metrics['accuracy']:.1%} on 16 test rows")
    assert f"micro F1 {metrics['micro_f1']:.1%}" in result.summary
    assert all(mistake["true"] != mistake["predicted"] for mistake in metrics["mistakes"])


@pytest.mark.slow
def test_the_page_of_a_multi_label_job_says_what_an_exact_match_is(finished):
    job, _ = finished("multi_label_classification")

    page = Page((job.report_dir / "report.html").read_text(encoding="utf-8"))

    text = " ".join(page.texts)
    assert "of 16 test texts have exactly the right labels" in text
    assert "no label is missing and none is too many" in text
    assert {"chart-labels", "chart-buckets"} <= set(page.ids)
    assert "chart-confusion" not in page.ids
    assert "Exact match by text length" in text
    assert "labels given" in text


@pytest.mark.slow
def test_a_job_of_pairs_shows_both_texts_of_a_mistake(make_job):
    job = make_job(takes_pairs=True)

    evaluate(job)

    mistake = read_metrics(job)["mistakes"][0]
    assert mistake["text_pair"] == "w1 & <i>second</i>"
    assert mistake["tokens"] <= 12
    page = Page((job.report_dir / "report.html").read_text(encoding="utf-8"))
    assert "i" not in page.tags
    assert "w1 & <i>second</i>" in " ".join(page.texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", ["sequence_classification", "token_classification", "multi_label_classification"]
)
def test_the_page_escapes_texts_and_labels_and_loads_nothing(finished, task):
    job, _ = finished(task)

    page = Page((job.report_dir / "report.html").read_text(encoding="utf-8"))

    assert not page.tags & {"script", "img", "link", "iframe", "object", "base", "b>no"}
    assert [address for address in page.addresses if not address.startswith("#")] == []
    assert len(page.ids) == len(set(page.ids))
    text = " ".join(page.texts)
    assert "<script>alert('x')</script>" in text
    if task != "token_classification":
        assert "<b>no</b> & $x_" in text


@pytest.mark.slow
def test_the_page_shows_the_course_of_the_training_and_what_happened(make_job):
    job = make_job()
    write_lines(job.checkpoint_dir / "validation.jsonl", [validation_row(2)])
    event = {"step": 2, "kind": "out_of_memory", "message": "8 rows & <b>more</b>", "time_s": 60.0}
    write_lines(job.checkpoint_dir / "events.jsonl", [event])

    evaluate(job)

    page = Page((job.report_dir / "report.html").read_text(encoding="utf-8"))
    text = " ".join(page.texts)
    charts = ("loss", "validation", "optimisation", "throughput", "memory")
    assert {f"chart-{name}" for name in charts} <= set(page.ids)
    assert "What happened" in text
    assert "1970-01-01 00:01:00 out of memory 8 rows & <b>more</b>" in " ".join(text.split())
    assert (
        "the last weights, after step 2 of 2. On the validation rows they gave loss 0.600" in text
    )
    assert read_metrics(job)["checkpoint"]["validation"]["accuracy"] == 0.75


@pytest.mark.slow
def test_the_page_says_which_lines_of_the_training_it_left_out(make_job):
    job = make_job()
    write_lines(job.checkpoint_dir / "validation.jsonl", [validation_row(2), {"step": 3}])
    (job.checkpoint_dir / "history.jsonl").write_bytes(b"\xff\xfe\x00\n{\n")

    evaluate(job)

    page = Page((job.report_dir / "report.html").read_text(encoding="utf-8"))
    assert (
        "Left out of what is shown of the training, because it cannot be read: "
        "2 lines of history.jsonl, 1 line of validation.jsonl."
    ) in " ".join(page.texts)
    assert "chart-loss" not in page.ids


def test_a_training_without_events_and_measurements_leaves_them_out(finished):
    job, _ = finished()

    page = Page((job.report_dir / "report.html").read_text(encoding="utf-8"))

    assert "What happened" not in " ".join(page.texts)
    assert "Left out" not in " ".join(page.texts)
    assert "chart-validation" not in page.ids
    assert read_metrics(job)["checkpoint"]["validation"] is None


@pytest.mark.slow
def test_equal_inputs_give_equal_bytes(make_job):
    job = make_job()
    evaluate(job)
    before = {name: (job.report_dir / name).read_bytes() for name in NAMES}

    assert not evaluate(job, force=True).is_reused

    assert {name: (job.report_dir / name).read_bytes() for name in NAMES} == before


@pytest.mark.slow
def test_a_finished_report_is_reused_until_an_input_changes(make_job):
    job = make_job()
    first = evaluate(job)

    again = evaluate(job)
    other = evaluate(job.model_copy(update={"evaluate": job.evaluate.__class__(batch_rows=3)}))

    assert again.is_reused
    assert again.summary == first.summary
    assert not other.is_reused


@pytest.mark.slow
def test_the_best_weights_are_measured_anew_when_they_are_chosen(make_job):
    job = make_job()
    evaluate(job)
    folder = job.checkpoint_dir
    best = folder / "step_1_loss_0.9000.pt"
    shutil.copyfile(folder / "step_2_loss_0.5000.pt", best)
    entry = {"file": best.name, "step": 1, "loss": 0.9, "kind": "rolling", "is_best": True}
    entries = [{**entry, "sha256": sha256_file(best)}, *read_manifest(folder)["checkpoints"]]
    change_checkpoint(job, checkpoints=entries)

    with_last = evaluate(job)
    change_checkpoint(job, final_weights="best")
    with_best = evaluate(job)

    # The bytes are the same, so the hash alone would not tell.
    assert with_last.is_reused
    assert not with_best.is_reused
    assert read_metrics(job)["checkpoint"]["file"] == best.name
    page = (job.report_dir / "report.html").read_text(encoding="utf-8")
    assert "the best weights by validation macro F1, after step 1 of 2." in page


@pytest.mark.slow
def test_a_damaged_report_is_written_again(make_job):
    job = make_job()
    evaluate(job)
    (job.report_dir / "report.html").write_text("damaged")

    assert not evaluate(job).is_reused
    assert (job.report_dir / "report.html").read_text() != "damaged"


def test_a_checkpoint_of_other_shards_is_refused(make_job):
    job = make_job()
    change_checkpoint(job, shards_fingerprint="shards-0")

    with pytest.raises(FolderError, match=r"trained on other shards .*Run `textlane train`"):
        evaluate(job)


def test_a_manifest_that_does_not_say_what_is_best_is_refused(make_job):
    job = make_job()
    manifest = read_manifest(job.checkpoint_dir)
    del manifest["best_metric"]
    write_manifest(job.checkpoint_dir, manifest)

    with pytest.raises(FolderError, match=r"lacks best_metric.*Run `textlane train`"):
        evaluate(job)


def test_an_unfinished_training_is_refused(make_job):
    job = make_job()
    change_checkpoint(job, is_finished=False, checkpoints=[])

    with pytest.raises(FolderError, match="the training is not finished"):
        evaluate(job)


def test_a_changed_checkpoint_is_refused_and_no_report_is_left(make_job):
    job = make_job()
    path = next(job.checkpoint_dir.glob("*.pt"))
    path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(AlteredFileError, match=r"step_2_loss_0\.5000\.pt"):
        evaluate(job)
    assert not job.report_dir.exists()


@pytest.mark.slow
def test_the_baseline_is_measured_on_the_same_rows(make_job):
    pytest.importorskip("sklearn")
    job = make_job(baseline=True)

    result = evaluate(job)

    baseline = read_metrics(job)["baseline"]
    assert baseline["name"] == "TF-IDF + logistic regression"
    assert 0.0 <= baseline["accuracy"] <= 1.0
    gap = round(16 * (read_metrics(job)["accuracy"] - baseline["accuracy"]))
    assert baseline["only_model_right"] - baseline["only_baseline_right"] == gap
    assert "TF-IDF + logistic regression" in result.summary


def test_a_baseline_without_scikit_learn_is_refused_with_a_remedy(make_job, monkeypatch):
    job = make_job(baseline=True)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)

    with pytest.raises(ConfigError, match=r"needs scikit-learn.*pip install 'textlane\[demo\]'"):
        evaluate(job)
