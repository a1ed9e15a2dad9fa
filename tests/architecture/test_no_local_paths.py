"""The project names no machine: no home folders, no package index, nothing that exists on one computer only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.source_tree import project_files, relative

LOCAL = re.compile(
    r"""
    (?<![\w.:/~-]) / (?:home|root|Users|work|opt|mnt) / [\w.]  # an absolute path on somebody's machine
    | \.\./shared\b                                            # a folder beside the checkout
    | \bfile:// /? \w                                          # a package that only one machine has
    | --(?:extra-)?index-url | --find-links | --trusted-host   # where packages come from is pip's configuration
    | \bhttps?://[^\s/]+/(?:\w+/)*simple/? (?![\w-])           # a package index
    """,
    re.VERBOSE,
)
TEXT = {".py", ".toml", ".md", ".txt", ".css", ".js", ".json", ".yml", ".out", ".cfg", ""}


@pytest.mark.parametrize("path", [p for p in project_files() if p.suffix in TEXT and p.name != "LICENSE"], ids=relative)
def test_file_names_no_machine(path: Path) -> None:
    if path == Path(__file__).resolve():
        pytest.skip("holds the patterns themselves")
    found = [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LOCAL.search(line)
    ]
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        'PATH = "/home/ada/mgpu"',
        "cd /root/.pyenv",
        "open('/work/x.npz')",
        "see ../shared/notes.md",
        "jax @ file:///wheels/jax.whl",
        "pip install --index-url x",
        "https://mirror.example.org/pypi/simple/",
    ],
)
def test_the_check_can_fail(line: str) -> None:
    assert LOCAL.search(line)


@pytest.mark.parametrize(
    "line",
    ["https://docs.jax.dev/en/latest/pallas/simple_example", "/usr/bin/chromium", "a/work/b", "grid/home/x", "/tmp/x"],
)
def test_the_check_lets_other_text_pass(line: str) -> None:
    assert not LOCAL.search(line)
