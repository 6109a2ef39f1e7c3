"""Splits, pairs, several labels and over-long texts, from a file to the shards."""

import json

import pytest
from prepare_samples import build, job_for

from pipeline.contract.errors import DataError, FolderError
from pipeline.contract.shards import load_shards
from pipeline.data.prepare import shards_fingerprint, summarise
from pipeline.data.sources import find_sources

LETTERS = "abcdefghijklmnop"
FREE = {"validation_share": 0.2, "test_share": 0.2}


def write_csv(path, rows, *, header="text,label"):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def text_of(number, words=3):
    return " ".join(LETTERS[(number * 7 + word * (1 + number // 16)) % 16] for word in range(words))


def numbered(begin, end, words=3):
    return [f"{i} {text_of(i, words)},{'yes' if i % 2 else 'no'}" for i in range(begin, end)]


def rejected_of(job):
    lines = (job.shards_dir / "rejected.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_given_files_are_their_splits_and_the_rest_is_divided(tmp_path):
    main = write_csv(tmp_path / "main.csv", numbered(0, 100))
    test = write_csv(tmp_path / "test.csv", [*numbered(100, 120), numbered(0, 100)[5]])
    job = job_for(tmp_path, main, data={**FREE, "test_files": [str(test)]})

    manifest = build(job)

    shards = load_shards(job.shards_dir)
    assert set(shards.split("test").row_ids) == set(range(100, 121))
    assert manifest["rows"]["rejected_by_reason"] == {"duplicate_across_splits": 1}
    assert [(row["file"], row["line"]) for row in rejected_of(job)] == [(str(main), 7)]
    assert manifest["splits"]["validation"]["rows"] + manifest["splits"]["train"]["rows"] == 99


@pytest.mark.slow
def test_split_column_decides(tmp_path):
    names = ["train", "train", "dev", "test"]
    rows = [f"{row},{names[i // 2 % 4]}" for i, row in enumerate(numbered(0, 40))]
    file = write_csv(tmp_path / "a.csv", rows, header="text,label,part")
    job = job_for(tmp_path, file, data={"split_column": "part"})

    build(job)

    shards = load_shards(job.shards_dir)
    expected = {i for i in range(40) if names[i // 2 % 4] == "dev"}
    assert set(shards.split("validation").row_ids) == expected


def test_label_only_in_the_test_file_is_an_error_with_its_name(tmp_path):
    main = write_csv(tmp_path / "main.csv", numbered(0, 60))
    test = write_csv(tmp_path / "test.csv", [*numbered(60, 70), "odd one,rare"])
    job = job_for(tmp_path, main, data={**FREE, "test_files": [str(test)]})

    with pytest.raises(DataError, match=r"labels of the test rows never occur.*\['rare'\]"):
        build(job)
    assert not job.shards_dir.exists()


@pytest.mark.slow
def test_pairs_are_encoded_together_and_told_apart_by_both_texts(tmp_path):
    rows = [f"{row},{text_of(i + 1)}" for i, row in enumerate(numbered(0, 60))]
    twin = rows[3].rsplit(",", 1)[0] + ",other words"
    file = write_csv(tmp_path / "a.csv", [*rows, twin, rows[4]], header="text,label,reply")
    job = job_for(tmp_path, file, data={**FREE, "text_pair_column": "reply", "max_bad_share": 0})

    manifest = build(job)

    assert manifest["takes_pairs"]
    assert manifest["rows"]["rejected_by_reason"] == {"duplicate": 1}
    train = load_shards(job.shards_dir).split("train")
    sep = train.input_ids(0)[-1]
    for row in range(len(train)):
        assert (train.input_ids(row) == sep).sum() == 2
        assert train.text_pair(row)


def test_pairs_that_do_not_fit_are_refused(tmp_path):
    rows = [f"{row},{text_of(i + 1)}" for i, row in enumerate(numbered(0, 60))]
    file = write_csv(tmp_path / "a.csv", rows, header="text,label,reply")
    data = {**FREE, "text_pair_column": "reply"}

    with pytest.raises(FolderError, match=r"at least 5 for pairs of texts \(got 4\)"):
        build(job_for(tmp_path, file, data=data, model={"max_seq_len": 4}))


@pytest.mark.slow
def test_rows_may_have_several_labels_or_none(tmp_path):
    labels = ["x|y", "y", "", "z|x"]
    rows = [f"{i} {text_of(i)},{labels[i % 4]}" for i in range(120)]
    file = write_csv(tmp_path / "a.csv", rows)
    job = job_for(
        tmp_path,
        file,
        data={**FREE, "label_separator": "|", "stratify": True},
        task="multi_label_classification",
    )

    manifest = build(job)

    shards = load_shards(job.shards_dir)
    assert shards.labels == ["x", "y", "z"]
    train = shards.split("train")
    by_kind = [[0, 1], [1], [], [0, 2]]
    for row, row_id in enumerate(train.row_ids.tolist()):
        assert train.labels(row).tolist() == by_kind[row_id % 4]
    assert manifest["splits"]["test"]["label_counts"] == {"x": 12, "y": 12, "z": 6}


@pytest.mark.slow
def test_windows_hold_all_of_a_train_text_and_the_manifest_counts_both(tmp_path):
    file = write_csv(tmp_path / "a.csv", [*numbered(0, 60), *numbered(60, 90, words=40)])
    job = job_for(tmp_path, file, data={**FREE, "on_too_long": "window", "window_stride": 2})

    manifest = build(job)

    rows, splits = manifest["rows"], manifest["splits"]
    assert rows["windowed"] > 10
    assert rows["windows"] > 3 * rows["windowed"]
    told = summarise(manifest)
    texts = ", ".join(f"{name} {split['texts']}" for name, split in splits.items())
    assert sum(split["texts"] for split in splits.values()) == rows["kept"]
    assert told.startswith(f"{rows['kept']} of {rows['read']} rows ({texts}; ")
    assert f", {rows['windowed']} long ones as {rows['windows']:,} windows, padding " in told
    assert splits["train"]["rows"] - splits["train"]["texts"] == rows["windows"] - rows["windowed"]
    assert splits["test"]["rows"] == splits["test"]["texts"]
    assert rows["truncated"] > 0
    train = load_shards(job.shards_dir).split("train")
    identities = set(zip(train.row_ids.tolist(), train.windows.tolist(), strict=True))
    assert len(identities) == len(train) == splits["train"]["rows"]
    for row, (row_id, window) in enumerate(zip(train.row_ids, train.windows, strict=True)):
        whole = f"{row_id} {text_of(int(row_id), 40 if row_id >= 60 else 3)}"
        assert train.text(row) == ("" if window else whole)


@pytest.mark.slow
def test_very_long_line_in_windows_takes_room_for_one_text(tmp_path):
    long = " ".join(LETTERS[i % 16] for i in range(200_000))
    file = write_csv(tmp_path / "a.csv", [*numbered(0, 60), *[f"{long} {i},no" for i in range(5)]])
    job = job_for(tmp_path, file, data={**FREE, "on_too_long": "window", "window_stride": 2})

    manifest = build(job)

    assert manifest["rows"]["windows"] > 20_000
    size = sum(path.stat().st_size for path in job.shards_dir.rglob("*.arrow"))
    assert size < 20_000_000


@pytest.mark.slow
def test_too_long_rows_are_rejected_in_all_splits_and_are_not_bad(tmp_path):
    file = write_csv(tmp_path / "a.csv", [*numbered(0, 60), *numbered(60, 90, words=40)])
    job = job_for(tmp_path, file, data={**FREE, "on_too_long": "reject", "max_bad_share": 0})

    manifest = build(job)

    assert manifest["rows"]["rejected_by_reason"] == {"too_long": 30}
    assert manifest["rows"]["kept"] == sum(s["rows"] for s in manifest["splits"].values()) == 60
    assert [row["line"] for row in rejected_of(job)] == list(range(62, 92))


def test_label_of_which_every_row_is_too_long_is_named(tmp_path):
    long = [f"{i} {text_of(i, 40)},long" for i in range(60, 90)]
    file = write_csv(tmp_path / "a.csv", [*numbered(0, 60), *long])

    with pytest.raises(DataError, match=r"is over model\.max_seq_len \(got \['long'\]\)"):
        build(job_for(tmp_path, file, data={**FREE, "on_too_long": "reject"}))


@pytest.mark.slow
def test_sample_is_balanced_and_the_rest_is_accounted_for(tmp_path):
    file = write_csv(tmp_path / "a.csv", numbered(0, 200))

    manifest = build(job_for(tmp_path, file, data={**FREE, "sample_rows": 100}))

    counts = [split["label_counts"] for split in manifest["splits"].values()]
    assert [sum(count[label] for count in counts) for label in ("no", "yes")] == [50, 50]
    assert manifest["rows"]["not_sampled"] == 100


@pytest.mark.parametrize(
    "changes",
    [
        {"on_too_long": "reject"},
        {"window_stride": 3},
        {"stratify": True},
        {"split_column": "label"},
        {"text_pair_column": "label"},
        {"sample_rows": 5},
        {"test_files": ["b.csv"]},
        {"validation_files": ["b.csv"]},
        {"encoding": "latin-1"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_setting_that_decides_the_rows_decides_the_fingerprint(tmp_path, changes):
    file = write_csv(tmp_path / "a.csv", numbered(0, 20))
    other = write_csv(tmp_path / "b.csv", numbered(20, 40))
    changes = {key: [str(other)] if key.endswith("files") else v for key, v in changes.items()}

    def made_from(**data):
        job = job_for(tmp_path, file, data=data)
        return shards_fingerprint(job, find_sources(job.data), None)

    assert made_from(**changes) != made_from()


def test_file_moved_to_another_split_changes_the_fingerprint(tmp_path):
    files = [write_csv(tmp_path / f"{n}.csv", numbered(n * 9, n * 9 + 9)) for n in range(3)]

    def made_from(main, validation, test):
        data = {"validation_files": [str(validation)], "test_files": [str(test)]}
        job = job_for(tmp_path, main, data=data)
        return shards_fingerprint(job, find_sources(job.data), None)

    assert made_from(*files) != made_from(files[0], files[2], files[1])
