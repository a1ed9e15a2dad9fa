"""How each operation of JAX's Mosaic GPU kernel language is said in ours: one table for each family of operations.

JAX's types and transforms are recognised by the names of their classes, and primitives by their own names, so that
none of JAX's Mosaic GPU modules is imported and both supported versions of JAX are read by the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.frontend.pallas_rules import (
    arrays,
    barriers,
    blackwell,
    control,
    copies,
    inline,
    semaphores,
    tensor_core,
)
from mgpu.frontend.pallas_rules.translator import Rule

RULES: Mapping[str, Rule] = {
    **arrays.RULES,
    **barriers.RULES,
    **blackwell.RULES,
    **control.RULES,
    **copies.RULES,
    **inline.RULES,
    **semaphores.RULES,
    **tensor_core.RULES,
}
