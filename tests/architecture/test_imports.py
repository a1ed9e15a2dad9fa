"""Who may import whom. The layers are contracts in pyproject.toml; what import-linter cannot say is checked here."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.source_tree import ROOT, module_name, python_files, relative

JAX_INTERNALS = "mgpu.jax_internals"


def test_import_contracts_hold() -> None:
    linter = shutil.which("lint-imports", path=Path(sys.executable).parent)
    if linter is None:
        pytest.skip("import-linter is not installed; `make check` installs it and runs the contracts")
    result = subprocess.run(
        [linter, "--no-cache", "--no-logo"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def modules_loaded_by(statement: str) -> set[str]:
    """Runs a statement in a fresh interpreter; returns the top-level packages that it loaded."""
    code = f"import sys, json; {statement}; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize("statement", ["import mgpu", "import mgpu.capture, mgpu.profile_dir"])
def test_captures_are_read_without_jax(statement: str) -> None:
    assert not modules_loaded_by(statement) & {"jax", "jaxlib"}


@pytest.mark.parametrize("package", ["profiler", "dashboard"])
def test_every_module_is_usable_without_jax(package: str) -> None:
    if package == "dashboard" and importlib.util.find_spec("dash") is None:
        pytest.skip("dash is not installed (extra `dashboard`)")
    names = [module_name(path) for path in python_files(package) if path.name != "__main__.py"]
    assert names, f"{package} has no modules"
    assert not modules_loaded_by(f"import {', '.join(names)}") & {"jax", "jaxlib"}


def test_the_profiler_does_not_need_dash() -> None:
    names = [module_name(path) for path in python_files("profiler") if path.name != "__main__.py"]
    assert not modules_loaded_by(f"import {', '.join(names)}") & {"dash", "flask", "plotly"}


def test_the_check_for_jax_can_fail() -> None:
    assert {"jax", "jaxlib"} <= modules_loaded_by("import mgpu.capture, jax")


def find_jax_internals(source: str) -> list[int]:
    """Returns the lines that import, or reach through an attribute, anything private to JAX or jaxlib's MLIR."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr == "_src":
            names = ["jax._src"]
        else:
            continue
        if any(f"{name}.".startswith(("jax._src.", "jaxlib.")) for name in names):
            lines.append(node.lineno)
    return sorted(lines)


def test_jax_internals_are_imported_in_one_place() -> None:
    found = [
        f"{relative(path)}:{line}"
        for path in python_files("mgpu", "profiler", "dashboard", "examples", "benchmarks")
        if not module_name(path).startswith(JAX_INTERNALS)
        for line in find_jax_internals(path.read_text())
    ]
    assert not found, f"jax._src and jaxlib belong into {JAX_INTERNALS}: {', '.join(found)}"


@pytest.mark.parametrize(
    "source",
    [
        "from jax._src import core",
        "import jax._src.core as core",
        "from jax import _src",
        "import jax\njax._src.core",
        "import jaxlib.mlir.ir",
    ],
)
def test_the_check_for_internals_can_fail(source: str) -> None:
    assert find_jax_internals(source)


def test_the_check_for_internals_lets_public_names_pass() -> None:
    assert not find_jax_internals("import jax\nfrom jax import lax\nfrom jax.experimental import pallas\njax.jit")
