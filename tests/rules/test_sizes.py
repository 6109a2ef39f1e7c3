"""Small parts: a file is read in five minutes, a function without scrolling."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
FILES = [
    path.relative_to(ROOT)
    for package in ("pipeline", "serve_app", "cluster")
    for path in sorted((ROOT / package).rglob("*.py"))
]


def body_lines(node):
    # The docstring explains; it is not what makes a function long.
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("path", FILES, ids=str)
def test_file_and_its_functions_are_small(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]

    too_long = {f.name: body_lines(f) for f in functions if body_lines(f) > MAX_FUNCTION_LINES}

    assert len(text.splitlines()) <= MAX_FILE_LINES
    assert too_long == {}
