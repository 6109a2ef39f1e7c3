"""Reads one file as a job would, for tests of the readers."""

from pipeline.config import DataSettings, Task
from pipeline.data.formats import read_rows
from pipeline.data.rows import RejectedRow, SourceRow
from pipeline.data.sources import find_sources


def read(path, *, task=Task.SEQUENCE, **settings):
    data = DataSettings(files=(str(path),), **settings)
    return [row for source in find_sources(data) for row in read_rows(source, data, task)]


def texts(rows):
    return [(row.line, row.text, row.labels) for row in rows if isinstance(row, SourceRow)]


def reasons(rows):
    return [(row.line, row.reason.value) for row in rows if isinstance(row, RejectedRow)]
