"""Names that people read, for the identifiers that tables carry."""

from __future__ import annotations

from collections.abc import Mapping

_UNITS: Mapping[str, str] = {"tma_load": "TMA load", "tma_store": "TMA store", "tensor_core": "tensor core"}

# Steps of a warpgroup are named after their sites; the work of a unit has a name already ("TMA load").
_STEPS: Mapping[str, str] = {
    "tma_load": "issue TMA load",
    "tma_store": "issue TMA store",
    "mma_issue": "issue MMA",
    "mma_wait": "MMA wait",
    "set_registers": "set registers",
    "commit_smem": "commit SMEM",
    "sync": "warpgroup sync",
    "scope": "named scope",
    "completion": "launch completion",
}


def unit_name(name: str) -> str:
    """Returns the name of a hardware unit, anything else as it is: "tma_load" is "TMA load", "WG1" stays."""
    return _UNITS.get(name, name)


def step_name(kind: str) -> str:
    """Returns the name of a step of the critical path or of a kind of site: "tma_load" is "issue TMA load"."""
    return _STEPS.get(kind, kind.replace("_", " "))
