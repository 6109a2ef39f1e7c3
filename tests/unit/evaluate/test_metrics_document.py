"""The README's table of metrics.json against what the stage writes."""

import json
import re
from pathlib import Path

import pytest
from log_samples import validation_row, write_lines

from pipeline.evaluate.run import evaluate

README = Path(__file__).parents[3] / "pipeline/evaluate/README.md"


def keys_of(value, prefix=""):
    if isinstance(value, list):
        return {key for item in value for key in keys_of(item, prefix)}
    if not isinstance(value, dict):
        return {prefix}
    found = {prefix} if prefix else set()
    for key, item in value.items():
        found |= keys_of(item, f"{prefix}.{key}" if prefix else key)
    return found


@pytest.mark.slow
def test_the_readme_names_every_key_of_metrics_json_and_no_other(finished, make_job):
    pytest.importorskip("sklearn")
    written = set()
    with_baseline = make_job(baseline=True)
    write_lines(with_baseline.checkpoint_dir / "validation.jsonl", [validation_row(2)])
    evaluate(with_baseline)
    tasks = ("token_classification", "multi_label_classification")
    for job in (with_baseline, *(finished(task)[0] for task in tasks)):
        written |= keys_of(json.loads((job.report_dir / "metrics.json").read_text()))

    table = README.read_text("utf-8").split("## metrics.json")[1].split("## ")[0]
    documented = set(re.findall(r"^\| `([^`]+)` \|", table, flags=re.M))

    # The data names the types of entities; their fields are those of all entities.
    written = {re.sub(r"by_type\..*", "by_type.TYPE", key) for key in written}
    assert documented == written
