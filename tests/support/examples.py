"""Loads the example scripts, whose names begin with a number, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example(name: str) -> ModuleType:
    """Returns the example `name` (its file name without `.py`) as a module; loaded once."""
    qualified = f"example_{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(qualified, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        spec.loader.exec_module(module)
    return sys.modules[qualified]
