"""What an event costs in the loop that it is recorded in, by the compiled code: ours and JAX's own recorder.

    MGPU_CUDA_PACKAGES=FOLDER make bench-events     renews docs/recording.md

The kernel is the same text in both modules: a loop whose body is named scopes, which both record as two events each.
Two figures tell the cost. Instructions are counted. Cycles are those for which the instructions hold back the next one
of their warp, which ptxas writes into each of them: the least that a warp needs for them.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu

import mgpu
from support import mosaic_compiler
from support.gpu_lowering import kernel_modules, lower_for_gpu

OURS = {"ours, SMEM": 512, "ours, GMEM": 100_000}  # the larger buffer does not fit into SMEM
JAX, JAX_CHECKED = "JAX's", "JAX's, with bounds check"

_X = jax.ShapeDtypeStruct((128,), jnp.float32)
_PAGE = Path(__file__).parents[2] / "docs" / "recording.md"
_TEXT = """# What an event costs on the device

Written by `make bench-events`; do not edit. From the code that jaxlib {jax} makes for
`sm_90a` of a loop around {few} or {many} named scopes, which are two events each: SASS instructions of the loop for
each event, and the cycles that they hold back their warp, both without the scopes' own work. Waiting for memory is not
in it, so this is the least that an event costs.

JAX's recorder writes outside its buffer when that is full, unless its bounds check (JAX 0.12) is on. Ours never does,
and counts what did not fit; where the kernel leaves no room in SMEM it stores to GMEM, where JAX's does not run.

| recorder | track | instructions, {few} | instructions, {many} | cycles, {few} | cycles, {many} |
|---|---|--:|--:|--:|--:|
"""


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop in SASS: for each of its instructions, the text, and the cycles that it holds back its warp's next one."""

    instructions: tuple[tuple[str, int], ...]

    @property
    def events(self) -> int:
        """Readings of the clock: each is an event."""
        return sum("SR_CLOCKLO" in text for text, _ in self.instructions)

    @property
    def cost(self) -> tuple[int, int]:
        """Instructions and cycles."""
        return len(self.instructions), sum(cycles for _, cycles in self.instructions)


def compile_scopes(recorder: str, scope: mgpu.TraceScope, scopes: int, folder: Path) -> mosaic_compiler.Compiled:
    """Compiles a loop around some named scopes; MGPU_TARGET must be gpu.

    Args:
      recorder: one of `OURS`, `JAX` or `JAX_CHECKED`.
      scope: a track for each warpgroup, or each warp.
      scopes: how many, one after another.
      folder: for the compiler's files.
    """
    language: Any = mgpu if recorder in OURS else mosaic_gpu
    fields = {"profile_bounds_check": True} if recorder == JAX_CHECKED else {}
    params = language.CompilerParams(
        profile_space=OURS.get(recorder, 512),
        profile_dir=str(folder),
        profile_trace_scope=language.TraceScope[scope.name],
        **fields,
    )

    def body(x: Any, out: Any) -> None:
        def step(_: Any, value: Any) -> Any:
            for number in range(scopes):
                with jax.named_scope(f"part{number}"):
                    value = value * value + 1
            return value

        out[...] = lax.fori_loop(0, 5000, step, x[...])

    kernel = language.kernel(body, out_type=_X, scratch_types=[], compiler_params=params)
    # Without a GPU there is no callback in the lowered function, where JAX's recorder hands its words over.
    with mock.patch.object(jax.debug, "callback"):
        (module,) = kernel_modules(lower_for_gpu(kernel, _X))
    return mosaic_compiler.compile_module(module, folder)


def cost_of_an_event(recorder: str, scope: mgpu.TraceScope, scopes: int, folder: Path) -> tuple[float, float]:
    """Returns instructions and cycles; arguments as `compile_scopes`."""
    loop = max(_loops(compile_scopes(recorder, scope, scopes, folder).sass), key=lambda each: each.events)
    # ptxas unrolls loops as it likes: what the loop needs for itself is counted, which is the same for all recorders.
    work = sum("FFMA" in text for text, _ in loop.instructions)
    instructions, cycles = loop.cost
    return (instructions - work) / loop.events, (cycles - work) / loop.events


def _loops(sass: str) -> Iterator[Loop]:
    """Finds the loops: from a label to a branch back to it."""
    found: list[tuple[str, int]] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(found)
        elif instruction := re.search(r":(\d\d)\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*$", line):
            found.append((instruction[2], int(instruction[1])))
            target = re.search(r"\bBRA\b.*?(\.L_x_\d+)", instruction[2])
            if target and target[1] in labels:
                yield Loop(tuple(found[labels[target[1]] :]))


def _main(few: int = 1, many: int = 8) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as directory, mock.patch.dict("os.environ", MGPU_TARGET="gpu"):
        folder = Path(directory)
        for recorder in (*OURS, JAX, JAX_CHECKED):
            for scope in mgpu.TraceScope:
                costs = [cost_of_an_event(recorder, scope, scopes, folder) for scopes in (few, many)]
                figures = " | ".join(f"{cost[part]:.2f}" for part in (0, 1) for cost in costs)
                rows.append(f"| {recorder} | {scope.name} | {figures} |\n")
    _PAGE.write_text(_TEXT.format(jax=jax.__version__, few=few, many=many) + "".join(rows))
    print(_PAGE.read_text())


if __name__ == "__main__":
    _main()
