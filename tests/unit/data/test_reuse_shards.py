"""When finished shards are taken as they are, and when they are made again."""

import pytest
from prepare_samples import MADE_FROM, build, job_for, write_reviews

from pipeline.contract.folder import read_manifest, write_manifest
from pipeline.data.prepare import is_prepared, prepare, shards_fingerprint
from pipeline.data.sources import find_sources


def job_with_a_bad_row(tmp_path, **data):
    file = write_reviews(tmp_path / "a.csv", extra=",1\n")
    return job_for(tmp_path, file, data=data)


@pytest.fixture
def prepared(tmp_path):
    job = job_with_a_bad_row(tmp_path)
    build(job)
    return job


@pytest.mark.slow
def test_whole_shards_of_the_same_inputs_are_reused(prepared):
    assert is_prepared(prepared, MADE_FROM)
    assert not is_prepared(prepared, "0" * 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rejected.jsonl", "tokenizer.json", "train"])
@pytest.mark.parametrize("damage", ["altered", "truncated", "missing"])
def test_damaged_shards_are_made_again(prepared, name, damage):
    path = prepared.shards_dir / name
    path = min(path.iterdir()) if path.is_dir() else path
    content = path.read_bytes()

    if damage == "missing":
        path.unlink()
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + (b"" if damage == "truncated" else b"X" * middle))

    assert not is_prepared(prepared, MADE_FROM)


@pytest.mark.slow
@pytest.mark.parametrize("stricter", [{"on_bad_rows": "fail"}, {"max_bad_share": 0.001}])
def test_bad_rows_over_a_limit_set_later_are_looked_at_again(tmp_path, prepared, stricter):
    job = job_with_a_bad_row(tmp_path, **stricter)

    assert not is_prepared(job, MADE_FROM)


@pytest.mark.slow
def test_harmless_rejections_do_not_stand_in_the_way(tmp_path):
    file = write_reviews(tmp_path / "a.csv", extra="the film number 0 was good,0\n")
    job = job_for(tmp_path, file, data={"on_bad_rows": "fail"})

    manifest = build(job)

    assert manifest["rows"]["rejected_by_reason"] == {"duplicate": 1}
    assert is_prepared(job, MADE_FROM)


@pytest.mark.slow
def test_a_second_run_does_not_read_what_the_first_one_wrote(tmp_path, capsys):
    write_reviews(tmp_path / "a.csv")
    job = job_for(tmp_path, tmp_path)
    made_from = shards_fingerprint(job, find_sources(job.data), None)
    manifest = build(job)
    write_manifest(job.shards_dir, manifest | {"fingerprint": made_from})
    job.checkpoint_dir.mkdir()
    (job.checkpoint_dir / "history.jsonl").write_text("{}\n")

    result = prepare(job)

    assert result.is_reused
    said = " ".join(capsys.readouterr().err.split())
    expected = f"prepare: left out of {tmp_path}: 2 files that the job itself wrote into output_dir"
    assert said == expected
    assert read_manifest(job.shards_dir)["fingerprint"] == made_from
