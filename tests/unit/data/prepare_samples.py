"""Small jobs whose shards are built in this process, without Ray."""

import io

from rich.console import Console

from pipeline.config import JobConfig
from pipeline.data.passes import PASSES_HERE
from pipeline.data.screen import PrepareScreen
from pipeline.data.shard_folder import ShardInputs, build_shards
from pipeline.data.sources import find_sources

MADE_FROM = "f" * 64


def write_reviews(path, *, rows=200, extra=""):
    lines = [f"the film number {i} was {'very ' * (i % 9)}good,{i % 2}" for i in range(rows)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n" + extra)
    return path


def job_for(tmp_path, file, **sections):
    values = {
        "name": "unit",
        "output_dir": str(tmp_path / "out"),
        "data": {"files": [str(file)], **sections.pop("data", {})},
        "model": {"max_seq_len": 12, "vocab_size": 200, **sections.pop("model", {})},
        "buckets": {"num_buckets": 3, **sections.pop("buckets", {})},
    }
    return JobConfig.model_validate(values | sections)


def screen_on(file, *, is_terminal=False):
    return PrepareScreen(Console(file=file, force_terminal=is_terminal, width=100))


def build(job, *, passes=PASSES_HERE, encoder=None):
    inputs = ShardInputs(sources=find_sources(job.data), encoder=encoder, fingerprint=MADE_FROM)
    return build_shards(job, inputs, passes=passes, screen=screen_on(io.StringIO()))
