"""A file is one idea, a function fits on a screen or two."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support.source_tree import python_files, relative

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80  # docstring not counted: a long list of arguments is not a long function


def function_lengths(source: str) -> dict[str, int]:
    """Returns `name:line` -> lines of code for every function, nested ones included."""
    lengths = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            end = node.end_lineno or node.lineno
            lengths[f"{node.name}:{node.lineno}"] = end - node.lineno + 1 - _docstring_lines(node)
    return lengths


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    if ast.get_docstring(node) is None:
        return 0
    return (first.end_lineno or first.lineno) - first.lineno + 1


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_file_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MAX_FILE_LINES
    long = {name: lines for name, lines in function_lengths(source).items() if lines > MAX_FUNCTION_LINES}
    assert not long, f"longer than {MAX_FUNCTION_LINES} lines: {long}"


def test_lengths_leave_out_the_docstring_only() -> None:
    source = 'def f(\n    x,\n):\n    """Adds.\n\n    More.\n    """\n    def g():\n        return x\n\n    return g\n'
    assert function_lengths(source) == {"f:1": 7, "g:8": 2}
