import json

import numpy as np
import pytest

from pipeline.config import JobConfig
from pipeline.contract.errors import BadRowsError, DataError
from pipeline.contract.shards import load_shards
from pipeline.data.intake import select_rows
from pipeline.data.prepare import prepare, shards_fingerprint
from pipeline.data.shard_folder import build_shards
from pipeline.data.sources import find_sources
from pipeline.data.tokenise import tokenise_table

ASSETS = "tests/assets"


def tokenise_here(table, recipe):
    return tokenise_table(table, recipe.build(), recipe.task)


def write_reviews(path, *, rows=200, extra=""):
    lines = [f"the film number {i} was {'very ' * (i % 9)}good,{i % 2}" for i in range(rows)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n" + extra)
    return path


def job_for(tmp_path, file, **sections):
    values = {
        "name": "unit",
        "output_dir": str(tmp_path / "out"),
        "data": {"files": [str(file)], **sections.pop("data", {})},
        "model": {"max_seq_len": 12, "vocab_size": 200},
        "buckets": {"num_buckets": 3, "max_shard_rows": 50},
    }
    return JobConfig.model_validate(values | sections)


def build(job):
    selected = select_rows(job, find_sources(job.data))
    return build_shards(job, selected, encoder=None, made_from="f" * 64, tokenise=tokenise_here)


def test_shards_hold_every_kept_row_once_in_bucket_and_row_order(tmp_path):
    job = job_for(tmp_path, write_reviews(tmp_path / "a.csv", extra="the film,0\nthe film,0\n"))
    manifest = build(job)

    shards = load_shards(job.shards_dir)
    splits = {name: shards.split(name) for name in ("train", "validation", "test")}
    row_ids = np.concatenate([split.row_ids for split in splits.values()])
    assert sorted(row_ids) == list(range(201))
    assert manifest["rows"]["rejected_by_reason"] == {"duplicate": 1}
    for name, split in splits.items():
        buckets = np.searchsorted(shards.bucket_edges, split.lengths)
        keys = list(zip(buckets.tolist(), split.row_ids.tolist(), strict=True))
        assert keys == sorted(keys)
        assert manifest["splits"][name]["rows"] == len(split)
        assert manifest["splits"][name]["tokens"] == split.lengths.sum()


def test_shard_files_hold_one_bucket_and_no_more_rows_than_allowed(tmp_path):
    job = job_for(tmp_path, write_reviews(tmp_path / "a.csv", rows=400))

    files = build(job)["splits"]["train"]["files"]

    split = load_shards(job.shards_dir).split("train")
    assert {"train/bucket_02_shard_00000.arrow", "train/bucket_02_shard_00001.arrow"} <= set(files)
    assert files == sorted(files)
    assert len(files) >= len(split) / 50


def test_rows_carry_text_ids_and_label_of_their_source(tmp_path):
    job = job_for(
        tmp_path,
        write_reviews(tmp_path / "a.csv"),
        data={"label_names": {"1": "odd", "0": "even"}},
    )
    build(job)

    shards = load_shards(job.shards_dir)
    split = shards.split("test")
    row_id = int(split.row_ids[0])
    assert shards.labels == ["odd", "even"]
    assert split.text(0).startswith(f"the film number {row_id} was")
    assert shards.labels[split.labels(0)[0]] == ("odd" if row_id % 2 else "even")
    assert len(split.input_ids(0)) == split.lengths[0] <= 12


def test_manifest_accounts_for_truncation_and_padding(tmp_path):
    file = write_reviews(tmp_path / "a.csv")
    job = job_for(tmp_path, file, train={"global_batch": 8, "micro_batch": 8})
    manifest = build(job)

    padding = manifest["padding"]
    assert 0 <= padding["buckets_window"] < padding["buckets"] < padding["random"] < 1
    assert manifest["rows"]["truncated"] > 0
    assert manifest["bucket_edges"][-1] == 12
    num_rows = manifest["splits"]["train"]["rows"]
    assert sum(bucket["rows"] for bucket in manifest["buckets"]) == num_rows


def test_token_labels_stand_on_the_first_token_of_each_word(tmp_path):
    job = job_for(
        tmp_path,
        f"{ASSETS}/entities.conll",
        data={"text_column": "0", "label_column": "-1"},
        task="token_classification",
        model={"max_seq_len": 48, "vocab_size": 120},
    )
    manifest = build(job)

    shards = load_shards(job.shards_dir)
    train = shards.split("train")
    assert shards.labels[0] == "O"
    assert set(shards.labels) == {"O", *(f"{p}-{t}" for p in "BI" for t in ("PER", "LOC", "ORG"))}
    assert manifest["rows"]["kept"] == 300
    for row in range(len(train)):
        labels = train.labels(row)
        assert len(labels) == len(train.input_ids(row))
        assert labels[0] == labels[-1] == -100
        assert (labels >= 0).sum() == len(train.text(row).split())


def test_equal_inputs_give_equal_bytes(tmp_path):
    file = write_reviews(tmp_path / "a.csv")
    first, second = (build(job_for(tmp_path / name, file)) for name in ("one", "two"))

    assert first["files"] == second["files"]


def test_fingerprint_follows_contents_and_settings_but_not_the_output_folder(tmp_path):
    file = write_reviews(tmp_path / "a.csv")

    def made_from(job):
        return shards_fingerprint(job, find_sources(job.data), None)

    first = made_from(job_for(tmp_path, file))
    assert made_from(job_for(tmp_path / "elsewhere", file)) == first
    assert made_from(job_for(tmp_path, file, data={"max_bad_share": 0.5})) == first
    assert made_from(job_for(tmp_path, file, data={"on_bad_rows": "fail"})) == first
    assert made_from(job_for(tmp_path, file, seed=1)) != first
    assert made_from(
        job_for(tmp_path, file, data={"label_names": {"0": "a", "1": "b"}})
    ) != made_from(job_for(tmp_path, file, data={"label_names": {"1": "b", "0": "a"}}))
    write_reviews(file, rows=201)
    assert made_from(job_for(tmp_path, file)) != first


def test_failed_prepare_leaves_the_old_shards_and_lists_the_bad_rows(tmp_path):
    file = write_reviews(tmp_path / "a.csv")
    job = job_for(tmp_path, file)
    build(job)
    write_reviews(file, extra=" ,1\n" * 9)

    with pytest.raises(BadRowsError, match=r"9 of 209 rows are bad \(empty_text 9\)"):
        prepare(job)

    listed = (tmp_path / "out" / "bad_rows.jsonl").read_text().splitlines()
    assert json.loads(listed[0])["line"] == 202
    assert load_shards(job.shards_dir).manifest["fingerprint"] == "f" * 64


def test_prepare_fails_at_the_first_bad_row_when_told_to(tmp_path):
    file = write_reviews(tmp_path / "a.csv", extra=" ,1\n")

    with pytest.raises(DataError, match=r"a\.csv:202: bad row: empty text"):
        prepare(job_for(tmp_path, file, data={"on_bad_rows": "fail"}))
