"""The two passes over the rows: which functions do them, and the plain ones in this process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.data.blocks import read_blocks
from pipeline.data.cleaning import ReadRecipe
from pipeline.data.intake import ReadPass
from pipeline.data.source_file import SourceFile
from pipeline.data.tokenise import Tokeniser, TokenPass, TokenRecipe, TokenWork


@dataclass(frozen=True, kw_only=True)
class Passes:
    """How the files are read and how the rows are tokenised."""

    read: ReadPass
    tokenise: TokenPass


def read_here(sources: Sequence[SourceFile], recipe: ReadRecipe) -> Iterator[pa.Table]:
    """Yield the blocks of all files, one after the other."""
    for file, source in enumerate(sources):
        yield from read_blocks(source, file, recipe)


def tokenise_here(works: Sequence[TokenWork], recipe: TokenRecipe) -> Iterator[pa.Table]:
    """Yield the token rows of all work, one after the other."""
    yield from map(Tokeniser(recipe), works)


PASSES_HERE = Passes(read=read_here, tokenise=tokenise_here)
