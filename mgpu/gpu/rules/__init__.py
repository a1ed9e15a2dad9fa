"""Rules: how each operation of the language is called in JAX's Mosaic GPU module, a file per hardware unit."""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.gpu.rules import accesses, barriers, copies, hopper, inline
from mgpu.gpu.rules.base import Call as Call
from mgpu.gpu.rules.base import Rule as Rule

RULES: Mapping[str, Rule] = {**accesses.RULES, **barriers.RULES, **copies.RULES, **hopper.RULES, **inline.RULES}
"""For the name of each operation, what calls it in JAX's module."""

WITHOUT_COUNTERPART: Mapping[str, str] = {}
"""Operations that JAX's module does not have, and what to do instead."""
