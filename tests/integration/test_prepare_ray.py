import pytest

from pipeline.config import JobConfig
from pipeline.contract.folder import read_manifest
from pipeline.contract.shards import load_shards
from pipeline.data.intake import select_rows
from pipeline.data.prepare import prepare
from pipeline.data.sources import find_sources
from pipeline.data.tokenise import EncoderRecipe, rows_table, tokenise_table
from pipeline.data.tokenise_ray import tokenise_with_ray
from pipeline.data.vocabulary import text_settings_of, train_text_encoder

pytestmark = pytest.mark.ray


def job_for(tmp_path, name="one"):
    file = tmp_path / "reviews.csv"
    rows = [f"film {i} was {'so ' * (i % 11)}fine,{i % 3}" for i in range(600)]
    file.write_text("text,label\n" + "\n".join(rows) + "\n,1\n")
    return JobConfig.model_validate(
        {
            "name": "integration",
            "output_dir": str(tmp_path / name),
            "data": {"files": [str(file)], "sample_rows": 500},
            "model": {"max_seq_len": 12, "vocab_size": 200},
        }
    )


def test_prepare_writes_the_same_bytes_each_time_and_reuses_them(tmp_path, ray_cluster):
    first, second = job_for(tmp_path), job_for(tmp_path, "two")

    results = [prepare(first), prepare(second)]
    again, forced = prepare(first), prepare(first, force=True)

    assert [result.is_reused for result in results] == [False, False]
    assert again.is_reused
    assert not forced.is_reused
    assert read_manifest(first.shards_dir) == read_manifest(second.shards_dir)
    assert len(load_shards(first.shards_dir).split("train")) > 300


@pytest.mark.parametrize("rows_per_block", [600, 300, 77])
def test_rows_do_not_depend_on_the_number_of_blocks(tmp_path, ray_cluster, rows_per_block):
    job = job_for(tmp_path)
    selected = select_rows(job, find_sources(job.data))
    table = rows_table(selected.rows, selected.splits, selected.labels)
    encoder = train_text_encoder(
        [row.text for row in selected.rows], vocab_size=200, settings=text_settings_of(job)
    )
    recipe = EncoderRecipe(
        tokenizer_json=encoder.to_json(), settings=encoder.settings, task=job.task
    )

    in_ray = tokenise_with_ray(table, recipe, rows_per_block=rows_per_block)

    assert in_ray.equals(tokenise_table(table, encoder, job.task).combine_chunks())
