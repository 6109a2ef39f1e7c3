"""The two passes in parallel with Ray Data; the only file of this folder that knows Ray."""

import logging
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from pipeline.contract.errors import TextlaneError
from pipeline.data.blocks import BLOCK_SCHEMA, read_blocks
from pipeline.data.cleaning import ReadRecipe
from pipeline.data.passes import Passes, read_here
from pipeline.data.source_file import SourceFile
from pipeline.data.tokenise import TOKEN_SCHEMA, Tokeniser, TokenRecipe, TokenWork

_READ_CPUS = 0.5
"""Reading waits for disks; half a CPU also lets it run beside an actor on one CPU."""
_BLOCK_BYTES = 4 << 20
"""Blocks stream to the driver from this size on; more means fewer and larger ones."""
_STORE_BYTES = 256 << 20
"""Blocks in flight, all together; the readers wait when the driver falls behind."""
_ERROR = pa.field("error", pa.binary())
"""An error of ours travels as a row: raised in a worker it would come wrapped in Ray's."""


def read_with_ray(sources: Sequence[SourceFile], recipe: ReadRecipe) -> Iterator[pa.Table]:
    """Yield the blocks of all files in their order; the files are read side by side.

    Needs a Ray connection. A single file is read in this process: no other one would be
    faster, and starting it takes longer than reading 30,000 texts.

    Raises:
        DataError: a file cannot be used.
        ConfigError: a setting or package that a file needs is missing.
    """
    if len(sources) == 1:
        yield from read_here(sources, recipe)
        return
    items = [{"file": file} for file in range(len(sources))]
    data = _from_items(items).map_batches(
        partial(_read_file, sources=tuple(sources), recipe=recipe),
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=_READ_CPUS,
    )
    yield from _stream(data)


def tokenise_with_ray(works: Sequence[TokenWork], recipe: TokenRecipe) -> Iterator[pa.Table]:
    """Yield the token rows of all work in its order, from one actor for each CPU.

    Needs a Ray connection.

    Raises:
        FolderError: a worker does not see the spool.
    """
    import ray

    items = [{"work": pickle.dumps(work)} for work in works]
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray's
    num_actors = max(1, min(len(works), int(resources.get("CPU", 1))))
    # A lost node's actors start again elsewhere. On one node there is no elsewhere, and Ray
    # would print an error about restarts that its own arguments (2.60) make doubtful.
    nodes: list[object] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's
    restarts = -1 if len(nodes) > 1 else 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")  # No other way yet.
        data = _from_items(items).map_batches(
            _TokeniserActor,
            fn_constructor_kwargs={"recipe": recipe},
            compute=ray.data.ActorPoolStrategy(size=num_actors),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=1,
            max_restarts=restarts,
            max_task_retries=restarts,
        )
    yield from _stream(data)


RAY_PASSES = Passes(read=read_with_ray, tokenise=tokenise_with_ray)


def _read_file(
    item: pa.Table, sources: Sequence[SourceFile], recipe: ReadRecipe
) -> Iterator[pa.Table]:
    for file in item.column("file").to_pylist():
        yield from _with_errors(partial(read_blocks, sources[file], file, recipe), BLOCK_SCHEMA)


class _TokeniserActor:
    """One tokenizer for all the work that comes to this process."""

    def __init__(self, recipe: TokenRecipe) -> None:
        # Ray runs one actor for each CPU; more threads would only get in each other's way.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self._recipe = recipe
        self._tokeniser: Tokeniser | None = None

    def __call__(self, item: pa.Table) -> Iterator[pa.Table]:
        for work in item.column("work").to_pylist():
            yield from _with_errors(partial(self._tokenise, pickle.loads(work)), TOKEN_SCHEMA)

    def _tokenise(self, work: TokenWork) -> Iterator[pa.Table]:
        if self._tokeniser is None:
            self._tokeniser = Tokeniser(self._recipe)
        yield self._tokeniser(work)


def _with_errors(make: Callable[[], Iterator[pa.Table]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the tables with a column for an error; one of ours ends them as a row of its own."""
    try:
        for table in make():
            yield table.append_column(_ERROR, pa.nulls(table.num_rows, _ERROR.type))
    except TextlaneError as error:
        blank = {name: [_blank(schema.field(name).type)] for name in schema.names}
        blank[_ERROR.name] = [pickle.dumps(error)]
        yield pa.table(blank, schema=schema.append(_ERROR))


def _blank(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return []
    return "" if pa.types.is_string(kind) else 0


def _from_items(items: Sequence[dict[str, Any]]) -> Any:
    """Return a data set with one block for each item, whose work is in order, small and silent."""
    import ray
    from ray.data import DataContext, ExecutionOptions, ExecutionResources

    context = DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.target_max_block_size = _BLOCK_BYTES
    context.execution_options = ExecutionOptions(
        preserve_order=True,
        resource_limits=ExecutionResources.for_limits(object_store_memory=_STORE_BYTES),
    )
    with DataContext.current(context):  # A data set keeps the context of its beginning.
        # Blocks made here; `from_arrow` would start a process that counts their rows.
        return ray.data.from_items(list(items), override_num_blocks=len(items))


def _stream(data: Any) -> Iterator[pa.Table]:
    """Yield the tables of a data set as they come, or raise the error that is among them."""
    with _quiet_logger():
        for table in data.iter_batches(batch_size=None, batch_format="pyarrow"):
            errors = table.column(_ERROR.name).drop_null()
            if len(errors):
                raise pickle.loads(errors[0].as_py())
            yield table.drop_columns([_ERROR.name])


@contextmanager
def _quiet_logger() -> Iterator[None]:
    logger = logging.getLogger("ray.data")
    level = logger.level
    # Its warnings here are about the bars that are off and CPUs that have just been asked for.
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
