"""Every name that a module exports exists and says what it is."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

from support.source_tree import PACKAGES, module_name, python_files, relative


def _has_all(path: Path) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__all__" for node in ast.walk(ast.parse(path.read_text())))


EXPORTING = [path for path in python_files(*PACKAGES) if _has_all(path)]


def _import(path: Path) -> ModuleType:
    if relative(path).startswith("dashboard/"):
        pytest.importorskip("dash", reason="dash is not installed (extra `dashboard`)")
    return importlib.import_module(module_name(path))


def undocumented(name: str, value: object) -> bool:
    """Returns True for a function or class of ours without a docstring of its own."""
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return False  # a constant is documented where it is assigned, a module by its own test
    if value.__module__.split(".")[0] not in PACKAGES:
        return False  # re-exported from JAX, documented there
    text = value.__doc__ or ""
    # A dataclass or NamedTuple without a docstring gets its signature as one.
    return not text.strip() or text.startswith(f"{name}(")


@pytest.mark.parametrize("path", EXPORTING, ids=relative)
def test_exported_names_exist_and_are_documented(path: Path) -> None:
    module = _import(path)
    names = list(module.__all__)
    assert len(names) == len(set(names)), "a name is exported twice"
    missing = [name for name in names if not hasattr(module, name)]
    assert not missing
    assert not [name for name in names if undocumented(name, getattr(module, name))]


def test_mgpu_pins_its_public_surface() -> None:
    assert {relative(path) for path in EXPORTING} >= {"mgpu/__init__.py"}


@pytest.mark.parametrize("path", python_files(*PACKAGES), ids=relative)
def test_module_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not tree.body or ast.get_docstring(tree), "begin the file with what it is for and why it is here"


def test_the_check_for_docstrings_can_fail() -> None:
    def silent() -> None: ...

    silent.__module__ = "mgpu.example"
    assert undocumented("silent", silent)
    assert not undocumented("Path", Path)
