"""Tokenises a table in parallel with Ray Data; the only file of this folder that knows Ray."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial

import pyarrow as pa

from pipeline.contract.tokenization import TextEncoder
from pipeline.data.tokenise import EncoderRecipe, tokenise_table

_ROWS_PER_BLOCK = 2048


def tokenise_with_ray(
    table: pa.Table, recipe: EncoderRecipe, *, rows_per_block: int = _ROWS_PER_BLOCK
) -> pa.Table:
    """Return :func:`tokenise_table` of the whole table, ordered by ``row_id``.

    Needs a Ray connection. The rows do not depend on how many blocks or workers there are.

    Args:
        table: rows of :data:`pipeline.data.tokenise.ROWS_SCHEMA`.
        recipe: tokenizer, text settings and task.
        rows_per_block: rows of one task; more means fewer tasks and less overlap.
    """
    import ray

    starts = range(0, max(table.num_rows, 1), rows_per_block)
    with _quiet_ray_data():
        data = ray.data.from_arrow([table.slice(start, rows_per_block) for start in starts])
        tokenised = data.map_batches(
            partial(_tokenise_block, recipe=recipe),
            batch_format="pyarrow",
            batch_size=None,
            zero_copy_batch=True,
        )
        tables = ray.get(tokenised.to_arrow_refs())
    return pa.concat_tables(tables).combine_chunks().sort_by("row_id")


def _tokenise_block(block: pa.Table, recipe: EncoderRecipe) -> pa.Table:
    # Ray runs one task for each CPU; threads of their own would only get in each other's way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return tokenise_table(block, _encoder(recipe), recipe.task)


@lru_cache(maxsize=1)
def _encoder(recipe: EncoderRecipe) -> TextEncoder:
    """Build the encoder once in a worker process, for all its blocks."""
    return recipe.build()


@contextmanager
def _quiet_ray_data() -> Iterator[None]:
    from ray.data import DataContext

    context = DataContext.get_current()
    before = (context.enable_progress_bars, context.print_on_execution_start)
    logger = logging.getLogger("ray.data")
    level = logger.level
    # Its warnings here are about the bars that are off and CPUs that have just been asked for.
    logger.setLevel(logging.ERROR)
    context.enable_progress_bars = context.print_on_execution_start = False
    try:
        yield
    finally:
        context.enable_progress_bars, context.print_on_execution_start = before
        logger.setLevel(level)
