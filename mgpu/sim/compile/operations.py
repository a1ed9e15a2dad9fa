"""The language's own operations: the rules of all families, and the names that their generated code uses."""

from __future__ import annotations

from typing import Any

from mgpu.sim.compile import (
    accesses,
    annotations,
    boxes,
    copies,
    inline,
    rearrangements,
    refs,
    semaphores,
    synchronisation,
    tensor_core,
)
from mgpu.sim.compile.context import Rule

NAMESPACE: dict[str, Any] = {**refs.NAMESPACE, **boxes.NAMESPACE, **synchronisation.NAMESPACE}
RULES: dict[str, Rule] = {
    **accesses.RULES,
    **synchronisation.RULES,
    **copies.RULES,
    **tensor_core.RULES,
    **semaphores.RULES,
    **annotations.RULES,
    **rearrangements.RULES,
    **inline.RULES,
}
