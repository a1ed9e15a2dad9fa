"""A kernel written for JAX's own Mosaic GPU module, and finding and lowering such kernels in a JAX function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu

from mgpu.frontend.from_pallas import is_kernel_equation
from mgpu.launch.device_choice import choose
from mgpu.launch.gpu_presence import as_if_on_gpu
from support.gpu_lowering import lower_for_gpu

STEPS = jax.ShapeDtypeStruct((6, 64, 64), jnp.float32)


def ring_copy(steps=6, slots=2, **options):
    def body(x_gmem, out_gmem, smem, full):
        def step(k, _):
            slot = lax.rem(k, slots)
            mosaic_gpu.copy_gmem_to_smem(x_gmem.at[k], smem.at[slot], full.at[slot])
            mosaic_gpu.barrier_wait(full.at[slot])
            with jax.named_scope("out"):
                mosaic_gpu.copy_smem_to_gmem(smem.at[slot], out_gmem.at[k])
                mosaic_gpu.wait_smem_to_gmem(0)

        lax.fori_loop(0, steps, step, None)

    return mosaic_gpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((steps, 64, 64), jnp.float32),
        scratch_types=[mosaic_gpu.SMEM((slots, 64, 64), jnp.float32), mosaic_gpu.Barrier(num_barriers=slots)],
        **options,
    )


def kernels_of(function, *operands):
    """The kernel equations that a JAX function launches, outermost first."""

    def find(jaxpr):
        for equation in jaxpr.eqns:
            if is_kernel_equation(equation):
                yield equation
                continue
            for value in equation.params.values():
                for each in value if isinstance(value, tuple) else (value,):
                    inner = getattr(each, "jaxpr", each)
                    if hasattr(inner, "eqns"):
                        yield from find(inner)

    with as_if_on_gpu(choose("h100")):
        return list(find(jax.make_jaxpr(function)(*operands).jaxpr))


def lowered(equation, kernel):
    return lower_for_gpu(kernel.bind, *operands_of(equation))


def operands_of(equation):
    return [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
