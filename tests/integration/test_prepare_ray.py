import io
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.config import JobConfig, Task
from pipeline.contract.errors import DataError, FolderError
from pipeline.contract.folder import read_manifest
from pipeline.contract.shards import load_shards
from pipeline.contract.tokenization import TextSettings
from pipeline.data import passes_ray
from pipeline.data.cleaning import ReadRecipe
from pipeline.data.passes import PASSES_HERE
from pipeline.data.passes_ray import RAY_PASSES, read_with_ray, tokenise_with_ray
from pipeline.data.prepare import prepare
from pipeline.data.screen import PrepareScreen
from pipeline.data.shard_folder import ShardInputs, build_shards
from pipeline.data.sources import find_sources
from pipeline.data.tokenise import TokenRecipe, TokenWork
from pipeline.data.vocabulary import train_text_encoder

pytestmark = pytest.mark.ray


def write_files(tmp_path, count=3):
    folder = tmp_path / "reviews"
    folder.mkdir(exist_ok=True)
    for number in range(count):
        rows = [f"film {i} was {'so ' * (i % 11)}fine,{i % 3}" for i in range(number, 600, count)]
        (folder / f"{number}.csv").write_text("text,label\n" + "\n".join(rows) + "\n,1\n")
    return folder


def job_for(tmp_path, name="one", **data):
    folder = write_files(tmp_path)
    return JobConfig.model_validate(
        {
            "name": "integration",
            "output_dir": str(tmp_path / name),
            "data": {"files": [str(folder)], **data},
            "model": {"max_seq_len": 12, "vocab_size": 200},
        }
    )


def build(job, passes):
    inputs = ShardInputs(sources=find_sources(job.data), encoder=None, fingerprint="f" * 64)
    screen = PrepareScreen(Console(file=io.StringIO()))
    return build_shards(job, inputs, passes=passes, screen=screen)


def test_prepare_writes_the_same_bytes_each_time_and_reuses_them(tmp_path, ray_cluster, capfd):
    first, second = job_for(tmp_path, sample_rows=500), job_for(tmp_path, "two", sample_rows=500)

    results = [prepare(first), prepare(second)]
    again, forced = prepare(first), prepare(first, force=True)

    assert [result.is_reused for result in results] == [False, False]
    assert again.is_reused
    assert not forced.is_reused
    assert read_manifest(first.shards_dir) == read_manifest(second.shards_dir)
    assert len(load_shards(first.shards_dir).split("train")) > 300
    shown = capfd.readouterr().err
    assert "3 of 603 rows rejected" in shown
    assert "Traceback" not in shown
    assert "ray" not in shown.lower()


@pytest.mark.parametrize("block_bytes", [1, 1 << 14, 1 << 26])
def test_ray_gives_the_bytes_of_the_plain_loops_whatever_its_blocks(
    tmp_path, ray_cluster, monkeypatch, block_bytes
):
    job = job_for(tmp_path, on_too_long="window", window_stride=2, stratify=True)
    expected = build(job, PASSES_HERE)
    monkeypatch.setattr(passes_ray, "_BLOCK_BYTES", block_bytes)

    assert build(job, RAY_PASSES) == expected


def test_error_in_a_worker_reaches_the_user_as_itself(tmp_path, ray_cluster, capfd):
    job = job_for(tmp_path)
    (tmp_path / "reviews" / "1.csv").write_text("txt,label\nfilm,1\n")

    with pytest.raises(DataError) as caught:
        prepare(job)

    assert type(caught.value) is DataError
    assert "there is no column 'text'" in str(caught.value)
    assert caught.value.__cause__ is None
    assert "Traceback" not in capfd.readouterr().err
    assert list(Path(job.output_dir).iterdir()) == []


def test_error_in_a_single_file_is_the_same(tmp_path, ray_cluster):
    job = job_for(tmp_path, files=[str(write_files(tmp_path) / "1.csv")])
    (tmp_path / "reviews" / "1.csv").write_text("txt,label\nfilm,1\n")

    with pytest.raises(DataError, match="there is no column 'text'"):
        prepare(job)


def test_bad_row_stops_the_reading_when_told_to(tmp_path, ray_cluster):
    job = job_for(tmp_path, on_bad_rows="fail")

    with pytest.raises(DataError, match=r"0\.csv:202: bad row: empty text"):
        prepare(job)


def test_worker_that_does_not_see_the_output_folder_says_so(tmp_path, ray_cluster):
    encoder = train_text_encoder(
        lambda: iter(["a b"]), vocab_size=100, settings=TextSettings(max_seq_len=8)
    )
    recipe = TokenRecipe(
        spool=tmp_path / "elsewhere" / "texts.arrow",
        tokenizer_json=encoder.to_json(),
        settings=encoder.settings,
        task=Task.SEQUENCE,
        labels=("a",),
        has_pairs=False,
        on_too_long="truncate",
        window_stride=0,
    )
    work = TokenWork(first_row=0, blocks=(0,), splits=b"\0")

    with pytest.raises(FolderError, match=r"a worker does not see the output folder.*all nodes"):
        list(tokenise_with_ray([work], recipe))


def test_bug_in_a_worker_is_not_hidden(tmp_path, ray_cluster):
    job = job_for(tmp_path)
    recipe = ReadRecipe(
        data=job.data, task=job.task, settings=TextSettings(max_seq_len=8), seed=job.seed
    )

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute"):
        list(read_with_ray([None, None], recipe))
