"""What recording costs on the GPU: time of a kernel with it off and on, per event, and of JAX's own recorder.

The kernel is written in the language that both modules share. Its loop is one named scope around one arrival: three
events of ours (begin, arrival, end), two of JAX's recorder, which knows scopes only. Times are CUPTI's, so they contain
nothing of the host.
"""

from __future__ import annotations

import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.mosaic.gpu import profiler as cupti
from jax.experimental.pallas import mosaic_gpu

import mgpu

COUNT = 512
ITERATIONS = 20


def scopes(language: Any, count: int, params: Any) -> Any:
    """Returns the kernel.

    Args:
      language: `mgpu`, or JAX's own module.
      count: executions of the scope.
      params: compiler parameters of that module, or None.
    """

    def body(x: Any, out: Any, barrier: Any) -> None:
        def step(_: Any, carry: None) -> None:
            with jax.named_scope("step"):
                language.barrier_arrive(barrier)

        lax.fori_loop(0, count, step, None)
        out[...] = x[...]

    return language.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
        scratch_types=[language.Barrier()],
        compiler_params=params,
        kernel_name="scopes",
    )


def event_cycles(capture_pair: tuple[Any, Any]) -> float:
    """Returns cycles for each event, from captures of `sm_probes.arrivals` with few and many executions.

    The arrival and the loop are in it, a third of them for each event, so this is an upper bound.
    """
    few, many = (capture.tracks[0] for capture in capture_pair)
    cycles = (int(many["clock_end"]) - int(many["clock_begin"])) - (int(few["clock_end"]) - int(few["clock_begin"]))
    return cycles / (int(many["count"]) - int(few["count"]))


def measure_overhead(clock_ghz: float) -> dict[str, float]:
    """Measures on the GPU.

    Args:
      clock_ghz: clock of the SMs, to turn times into cycles.

    Returns:
      Microseconds of the kernel for each way of recording, and cycles that an event costs.
    """
    with tempfile.TemporaryDirectory() as directory:
        ours = mgpu.CompilerParams(profile_space=4 * COUNT, profile_dir=f"{directory}/ours")
        theirs = mosaic_gpu.CompilerParams(profile_space=4 * COUNT, profile_dir=f"{directory}/jax")
        times = {
            "off": _microseconds(scopes(mgpu, COUNT, None)),
            "on": _microseconds(scopes(mgpu, COUNT, ours)),
            "off, JAX's module": _microseconds(scopes(mosaic_gpu, COUNT, None)),
            "on, JAX's recorder": _microseconds(scopes(mosaic_gpu, COUNT, theirs)),
        }
        times["empty kernel"] = _microseconds(scopes(mgpu, 0, None))
    per_event = 1000 * clock_ghz / COUNT
    return {f"{name} (us)": value for name, value in times.items()} | {
        "cycles per event": (times["on"] - times["off"]) * per_event / 3,
        "cycles per event, JAX's recorder": (times["on, JAX's recorder"] - times["off, JAX's module"]) * per_event / 2,
    }


def _microseconds(kernel: Any) -> float:
    """Returns the shortest of several launches on the device; what JAX adds around the kernel is not counted."""
    x = jnp.zeros(128, jnp.float32)
    run = jax.jit(kernel)
    jax.block_until_ready(run(x))
    found = []
    for _ in range(ITERATIONS):
        _, kernels = cupti.measure(run, aggregate=False)(x)
        jax.effects_barrier()
        found.append(max(milliseconds for _, milliseconds in kernels or []))
    return 1000 * float(np.min(found))
