"""KernelProgram -> JAX function that runs it on a GPU: one kernel of JAX's Mosaic GPU module, plus our words.

`GpuKernel.raw` is what jaxlib compiles: outputs and, if the program records, the words of the launch. It is an ordinary
traceable function, so it lowers on a machine without a GPU as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu

from mgpu.devices import Device
from mgpu.errors import Unsupported
from mgpu.frontend.program import KernelProgram, Launch
from mgpu.gpu.aliases import call_with_aliases
from mgpu.gpu.placement import fits_in_smem
from mgpu.gpu.recorder import Recorder, RecordFormat, row_of_cta
from mgpu.gpu.replay import Replay
from mgpu.params import CompilerParams
from mgpu.passes.checks import check_program
from mgpu.passes.launch_size import check_grid, check_memory
from mgpu.passes.sites import SitePlan, plan_sites


@dataclasses.dataclass(frozen=True, eq=False)
class GpuKernel:
    """A program made ready for the GPU.

    Attributes:
      program: what runs.
      device: the device table of the GPU that it runs on.
      plan: its sites.
      record_format: where events go; None if nothing is recorded.
    """

    program: KernelProgram
    device: Device
    plan: SitePlan
    record_format: RecordFormat | None

    def raw(self, *operands: Any) -> tuple[list[jax.Array], jax.Array | None]:
        """Runs the kernel on consts and inputs.

        Returns:
          The outputs, and uint32[CTAs, words]: what the recorder wrote; None if nothing is recorded.
        """
        program, layout = self.program, self.record_format
        out_type = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.out_avals]
        if layout is not None:
            out_type.append(words_type(layout, program.launch))
        launch = program.launch
        function = mosaic_gpu.kernel(
            self._body,
            out_type=out_type,
            compiler_params=compiler_params(program.params),
            grid=launch.grid,
            grid_names=launch.grid_names,
            cluster=launch.cluster,
            cluster_names=launch.cluster_names,
            num_threads=launch.num_threads if launch.thread_name else None,
            thread_name=launch.thread_name,
            kernel_name=program.name,
        )
        # A scalar cannot be a GMEM operand of a kernel; closed-over arrays may well be scalars.
        shaped = [jnp.reshape(x, (1,)) if not jnp.shape(x) else x for x in operands[: program.num_consts]]
        values = [*shaped, *operands[program.num_consts :]]
        if program.input_output_aliases:
            aliases = [(program.num_consts + number, output) for number, output in program.input_output_aliases]
            results = list(call_with_aliases(function, values, aliases))
        else:
            results = list(function(*values))
        words = results.pop() if layout is not None else None
        return results, words

    def _body(self, *refs: Any) -> None:
        layout = self.record_format
        if layout is None:
            self._replay(refs, None)
            return
        *refs_of_program, words = refs
        mine, row = words_of_cta(words, layout, self.program.launch)

        def recorded(*buffer: Any) -> None:
            recorder = Recorder(layout, mine, *buffer, row=row, unrecorded=self.plan.unrecorded)
            recorder.begin()
            self._replay(refs_of_program, recorder)
            recorder.end()

        if layout.in_smem:
            buffer = mosaic_gpu.SMEM((layout.smem_words,), jnp.uint32)
            pl.run_scoped(recorded, buffer, collective_axes=self.program.launch.thread_name or ())
        else:
            recorded()

    def _replay(self, refs: Sequence[Any], recorder: Recorder | None) -> None:
        program = self.program
        avals: list[Any] = [var.aval for var in program.jaxpr.constvars]
        consts = [
            ref[...] if aval.shape else ref[0] for ref, aval in zip(refs[: program.num_consts], avals, strict=True)
        ]
        Replay(program, self.plan, recorder).run(consts, refs[program.num_consts :])


def prepare(program: KernelProgram, device: Device) -> GpuKernel:
    """Makes a program ready for a GPU.

    Args:
      program: the traced kernel.
      device: table of the GPU: says whether the event buffer fits into SMEM.

    Raises:
      ResourceError: the grid or the memory that the launch needs is too large.
      KernelError: the program is illegal, or uses what JAX's Mosaic GPU module does not have (then when first called).
    """
    check_program(program)
    check_grid(program)
    plan = plan_sites(program)
    params, layout = program.params, None
    if params.profile_space:
        layout = RecordFormat(
            params.profile_space,
            program.launch.num_threads,
            params.profile_trace_scope,
            in_smem=True,
            window=params.profile_window,
        )
        if not fits_in_smem(program, layout, device.smem_per_cta_bytes):
            layout = dataclasses.replace(layout, in_smem=False)
    check_memory(program, 0 if layout is None else 4 * layout.gmem_words, device)
    return GpuKernel(program, device, plan, layout)


def compiler_params(params: CompilerParams) -> Any:
    """Returns JAX's compiler parameters for ours. JAX's own profiler stays off: the recorder is part of the kernel.

    Raises:
      Unsupported: a parameter that JAX's module does not have.
    """
    if params.delay_release:
        raise Unsupported(
            f"CompilerParams: delay_release={params.delay_release} is not available on the GPU for a whole kernel. "
            "Give it to the BlockSpec of the operand."
        )
    return mosaic_gpu.CompilerParams(
        approx_math=params.approx_math,
        dimension_semantics=params.dimension_semantics,
        max_concurrent_steps=params.max_concurrent_steps,
        unsafe_no_auto_barriers=params.unsafe_no_auto_barriers,
        reduction_scratch_bytes=params.reduction_scratch_bytes,
        lowering_semantics=mosaic_gpu.LoweringSemantics[params.lowering_semantics.name],
    )


def words_type(layout: RecordFormat, launch: Launch) -> jax.ShapeDtypeStruct:
    """Returns the type of the output that takes a launch's words: a row for each recorded CTA."""
    num_rows = len(layout.window.recorded_ctas(launch.num_ctas))
    return jax.ShapeDtypeStruct((num_rows, layout.gmem_words), jnp.uint32)


def words_of_cta(words: Any, layout: RecordFormat, launch: Launch) -> tuple[Any, Any]:
    """Returns the running CTA's row of that output, and its number; None for a number if all CTAs are recorded."""
    number = cta_number(launch)
    if layout.window.ctas is None:
        return words.at[number], None
    row = row_of_cta(number, layout.window)
    return words.at[jnp.maximum(row, 0)], row  # a CTA that is not recorded writes nothing


def cta_number(launch: Launch) -> Any:
    """Returns the linear number of the running CTA, as `Launch.axis_indices` counts."""
    number: Any = np.int32(0)
    for name, size in zip(launch.grid_names + launch.cluster_names, launch.grid + launch.cluster, strict=True):
        number = number * size + lax.axis_index(name)
    return number
