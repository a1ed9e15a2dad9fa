"""Imports `pallas_call` equations that JAX would compile with Mosaic GPU, as calls of our own `pallas_call`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.extend import core as jex_core

from mgpu.errors import Unsupported
from mgpu.frontend.pallas_launch import import_params
from mgpu.frontend.pallas_names import find_author
from mgpu.frontend.pallas_rules import RULES
from mgpu.frontend.pallas_rules.allocations import allocation_type, imported_ref, split_layout, transforms_of
from mgpu.frontend.pallas_rules.control import argument_names
from mgpu.frontend.pallas_rules.translator import Translator, open_jaxpr
from mgpu.jax_internals import current_source_line, hide_from_source_lines
from mgpu.lang.block_spec import BlockSpec
from mgpu.lang.memory import GMEM, SMEM
from mgpu.lang.scoped import name_parameters
from mgpu.launch.pallas_call import pallas_call
from mgpu.sim.options import InterpretGPUParams

hide_from_source_lines(__file__)

BACKEND = "mosaic_gpu"


def is_pallas_call(equation: Any) -> bool:
    """True for a `pallas_call` whose compiler parameters are those of Mosaic GPU."""
    if equation.primitive.name != "pallas_call":
        return False
    return hasattr(_params_of(equation), "profile_space")


def _params_of(equation: Any) -> Any:
    params = equation.params["compiler_params"]
    return params.get(BACKEND) if isinstance(params, Mapping) else params


def run_pallas_call(
    equation: Any, operands: Sequence[Any], options: InterpretGPUParams, replaced_params: Mapping[str, Any]
) -> list[Any]:
    """Runs a `pallas_call` equation on our backend.

    Args:
      equation: one for which `is_pallas_call` holds.
      operands: values of its operands.
      options: how to simulate.
      replaced_params: values for fields of the compiler parameters, instead of the call's own.

    Returns:
      Its results.

    Raises:
      Unsupported: run-time grids, index operands or vmap, or what a kernel may not use here; names the author's line.
    """
    params = equation.params
    mapping = params["grid_mapping"]
    jaxpr, consts = open_jaxpr(params["jaxpr"])
    if mapping.num_index_operands or mapping.vmapped_dims or not all(isinstance(size, int) for size in mapping.grid):
        raise Unsupported(
            f"{current_source_line()} pallas_call: run-time grids, scalar prefetch and vmap cannot be imported. "
            "Use a grid of constants, or plgpu.kernel, with a loop over a grid axis."
        )
    blocks = mapping.block_mappings
    scratch = [split_layout(aval) for aval in mapping.scratch_avals]
    layouts = [*(_block_layout(block) for block in blocks), *scratch]
    author = find_author(jaxpr, current_source_line())

    def kernel(*refs: Any) -> None:
        imported = [imported_ref(ref, *layout) for ref, layout in zip(refs, layouts, strict=True)]
        Translator(RULES, {}).evaluate(jaxpr, consts, imported)

    run = pallas_call(
        name_parameters(kernel, argument_names(jaxpr)),
        [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in params["out_avals"]],
        grid=mapping.grid,
        in_specs=[_import_spec(block) for block in blocks[: mapping.num_inputs]],
        out_specs=[_import_spec(block) for block in blocks[mapping.num_inputs :]],
        scratch_shapes=[allocation_type(*each) for each in scratch],
        input_output_aliases=dict(params["input_output_aliases"]),
        compiler_params=import_params(_params_of(equation), replaced_params),
        interpret=options,
        name=params["name"] or author.source.function,
    )
    return run(*operands)


_UNDONE_BY = {"TilingTransform": "UntilingTransform", "SwizzleTransform": "UnswizzleRef"}


def _block_layout(block: Any) -> tuple[Any, tuple[str, ...]]:
    """Returns the aval of a block's ref, and what JAX begins every use of it with."""
    names = tuple(_UNDONE_BY[type(transform).__name__] for transform in reversed(block.transforms))
    return block.transformed_block_aval, names


def _import_spec(block: Any) -> pl.BlockSpec:
    space = _SPACES[str(block.transformed_block_aval.memory_space)]
    transforms = transforms_of(block.transforms)
    return BlockSpec(
        tuple(_import_dimension(dimension) for dimension in block.block_shape),
        _index_map(block.index_map_jaxpr),
        memory_space=space,
        pipeline_mode=block.pipeline_mode,
        transforms=transforms,
    )


_SPACES = {"default": SMEM, "smem": SMEM, "gmem": GMEM}


def _import_dimension(dimension: Any) -> Any:
    kind = type(dimension).__name__
    return {"Blocked": getattr(dimension, "block_size", None), "Squeezed": None}.get(kind, dimension)


def _index_map(closed: Any) -> Callable[..., Any]:
    jaxpr, consts = open_jaxpr(closed)
    function = jex_core.jaxpr_as_fun(jex_core.ClosedJaxpr(jaxpr, consts))
    return lambda *indices: tuple(function(*indices))
