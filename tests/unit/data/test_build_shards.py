import json

import numpy as np
import pytest
from prepare_samples import MADE_FROM, build, job_for, write_reviews

from pipeline.contract.errors import BadRowsError, DataError
from pipeline.contract.shards import load_shards
from pipeline.data.prepare import shards_fingerprint
from pipeline.data.shard_folder import in_bucket_order
from pipeline.data.sources import find_sources

ASSETS = "tests/assets"


@pytest.mark.slow
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


@pytest.mark.slow
def test_padding_figures_are_of_the_rows_as_they_stand_in_the_files(tmp_path):
    job = job_for(tmp_path, write_reviews(tmp_path / "a.csv"))
    manifest = build(job)

    lengths = load_shards(job.shards_dir).split("train").lengths
    edges = np.array(manifest["bucket_edges"])
    in_order = np.random.default_rng(0).permutation(lengths).astype(np.int32)
    assert sorted(in_bucket_order(in_order, edges)) == sorted(lengths)
    assert in_bucket_order(lengths.astype(np.int32), edges).tolist() == lengths.tolist()
    assert [bucket["tokens"] for bucket in manifest["buckets"]] == [
        lengths[np.searchsorted(edges, lengths) == bucket].sum() for bucket in range(len(edges))
    ]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_failed_prepare_leaves_the_old_shards_and_lists_the_bad_rows(tmp_path):
    file = write_reviews(tmp_path / "a.csv")
    job = job_for(tmp_path, file)
    build(job)
    write_reviews(file, extra=" ,1\n" * 9)

    with pytest.raises(BadRowsError, match=r"9 of 209 rows are bad \(empty_text 9\)"):
        build(job)

    listed = (tmp_path / "out" / "bad_rows.jsonl").read_text().splitlines()
    assert json.loads(listed[0])["line"] == 202
    assert load_shards(job.shards_dir).manifest["fingerprint"] == MADE_FROM


def test_prepare_fails_at_the_first_bad_row_when_told_to(tmp_path):
    file = write_reviews(tmp_path / "a.csv", extra=" ,1\n")

    with pytest.raises(DataError, match=r"a\.csv:202: bad row: empty text"):
        build(job_for(tmp_path, file, data={"on_bad_rows": "fail"}))
