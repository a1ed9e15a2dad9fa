"""What inlined code takes: the work of its steps on the SM's pipes, and its longest chain of dependent steps.

Counted before anything runs. Both sides of a branch are counted, since lanes of one warp usually take both. The
compiler folds constants and computes the same thing once, and so are steps counted: those of constants alone are free,
and equal ones (addresses above all) are one.
"""

from __future__ import annotations

import math

from mgpu.devices import Device
from mgpu.errors import Unsupported
from mgpu.frontend.inline_code import Step, ValueType
from mgpu.sim.warp_schedulers import Work
from mgpu.units import LANES_PER_WARPGROUP as LANES
from mgpu.units import WARPS_PER_WARPGROUP

_MUFU = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sin", "cos")
_CONVERSIONS = ("extf", "truncf", "sitofp", "uitofp", "fptosi", "fptoui")
_FLOATS = ("addf", "subf", "mulf", "negf", "fma")
_DIVISION_STEPS = 8  # MUFU reciprocal and Newton steps of an IEEE division; as `costs.py` has it
_LOADS = ("memref.load", "vector.load", "llvm.load")
_STORES = ("memref.store", "vector.store", "llvm.store")
_FREE_DIALECTS = ("gpu", "builtin", "scf", "vector", "func")
_FREE = ("index_cast", "index_castui", "bitcast", "constant", "collapse_shape", "expand_shape", "cast", "extractvalue")


class Cost:
    """Work and latency of a list of steps.

    Args:
      steps: what is executed.
      types: type of each value.
      device: latencies.

    Attributes:
      work: of the whole warpgroup.
      chain_cycles: cycles of the longest chain.

    Raises:
      Unsupported: a loop whose length is not a constant.
    """

    def __init__(self, steps: tuple[Step, ...], types: tuple[ValueType, ...], device: Device) -> None:
        self.work = Work()
        self.chain_cycles = 0
        self._types = types
        self._device = device
        self._ready: dict[int, int] = {}
        self._names: dict[int, object] = {}  # of equal values
        self._seen: set[object] = set()  # asked, never iterated
        self._count(steps, 1)

    def _count(self, steps: tuple[Step, ...], times: int) -> None:
        for step in steps:
            repeats = times * (self._trips(step) if step.name == "scf.for" else 1)
            for region in step.regions:
                self._count(region.steps, repeats)
            if step.regions or self._is_known(step):
                continue
            work, latency = self._step(step)
            self.work += work * times
            begin = max((self._ready.get(number, 0) for number in step.operands), default=0)
            self._ready.update(dict.fromkeys(step.results, begin + latency))
            self.chain_cycles = max(self.chain_cycles, begin + latency)

    def _trips(self, step: Step) -> int:
        begin, end, stride = (self._names.get(number) for number in step.operands[:3])
        if not all(isinstance(each, int) for each in (begin, end, stride)):
            raise Unsupported(
                "inline_mgpu: a loop whose length is not a constant cannot be timed. Unroll it, or loop outside."
            )
        return max(0, math.ceil((end - begin) / stride))  # pyright: ignore[reportOperatorIssue]

    def _is_known(self, step: Step) -> bool:
        """True if a step computes a constant, or what another one has computed; notes what its result is."""
        if step.name in ("arith.constant", "llvm.mlir.constant"):
            value = step.attributes["value"]
            self._names[step.results[0]] = value if isinstance(value, (int, float)) else ("constant", str(value))
            return True
        if step.name in (*_LOADS, *_STORES) or not step.results:
            return False
        operands = tuple(self._names.get(number, ("value", number)) for number in step.operands)
        name = (step.name, operands, str(step.attributes))
        for number in step.results:
            self._names[number] = name
        if name in self._seen:
            return True
        self._seen.add(name)
        return bool(operands) and all(isinstance(each, (int, float)) for each in operands)

    def _step(self, step: Step) -> tuple[Work, int]:
        dialect, _, name = step.name.partition(".")
        device = self._device
        if step.name in _LOADS or step.name in _STORES:
            moved = step.types[0] if step.results else self._types[step.operands[0]]
            nbytes = math.prod(moved.shape) * (moved.dtype.itemsize if moved.dtype is not None else 1)
            instructions = WARPS_PER_WARPGROUP * math.ceil(nbytes / 16)  # at most 16 bytes for each lane
            work = Work(smem_bytes=LANES * nbytes, issue=instructions)
            return work, device.smem_latency_cycles if step.results else 0
        if "shfl" in name:
            return Work(shuffle=LANES, issue=WARPS_PER_WARPGROUP), device.shuffle_latency_cycles
        if dialect in _FREE_DIALECTS or name in _FREE:
            return Work(), 0
        elements = LANES * (math.prod(step.types[0].shape) if step.types else 1)
        issue = math.ceil(elements / 32)
        if name in _MUFU:
            return Work(mufu=elements, fma=elements, issue=2 * issue), device.mufu_latency_cycles
        if name == "divf":
            work = Work(mufu=elements, fma=_DIVISION_STEPS * elements, issue=(1 + _DIVISION_STEPS) * issue)
            return work, device.mufu_latency_cycles
        if name in _CONVERSIONS:
            return Work(cvt=elements, issue=issue), device.arithmetic_latency_cycles
        if name in _FLOATS:
            return Work(fma=elements, issue=issue), device.arithmetic_latency_cycles
        return Work(alu=elements, issue=issue), device.arithmetic_latency_cycles
