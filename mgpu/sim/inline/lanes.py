"""Stepping through the blocks of inlined code, with all 128 lanes of a warpgroup side by side.

A value is an array with one row for each lane, or with a single row if all lanes have the same. Where lanes disagree on
a branch, both sides run, each under the mask of the lanes that took it, as the hardware does.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mgpu.errors import BarrierError, Unsupported
from mgpu.frontend.inline_code import Block, Step, ValueType
from mgpu.sim.inline.arithmetic import OPERATIONS
from mgpu.sim.inline.memory import Memory, Memref, contiguous
from mgpu.units import LANES_PER_WARP
from mgpu.units import LANES_PER_WARPGROUP as LANES

EVERYWHERE = np.ones(1, bool)


@dataclasses.dataclass(frozen=True)
class Position:
    """Where the lanes are.

    Attributes:
      warpgroup, num_warpgroups: of the CTA.
      block: the CTA's index along the hardware's x, y and z, and the grid's sizes along them; None if unknown.
    """

    warpgroup: int
    num_warpgroups: int
    block: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None


class Lanes:
    """The lanes of one warpgroup while they run inlined code.

    Args:
      memory: the refs.
      position: where they are.
      source: the author's line, for errors.

    Attributes:
      values: what each number of the code stands for.
      memory: the refs.
    """

    def __init__(self, memory: Memory, position: Position, source: object) -> None:
        self.values: dict[int, Any] = {}
        self.memory = memory
        self._position = position
        self._source = source

    def run(self, steps: tuple[Step, ...], mask: np.ndarray) -> list[Any]:
        """Executes steps under a mask; returns what their last one yields."""
        with np.errstate(all="ignore"):  # arithmetic overflows as the hardware's does
            for step in steps:
                operands = [self.values[number] for number in step.operands]
                if step.name in ("scf.yield", "func.return"):
                    return operands
                results = self._perform(step, operands, mask)
                self.values.update(zip(step.results, results, strict=True))
        return []

    def uniform(self, number: int) -> int:
        """Returns an integer that must be the same in all lanes.

        Raises:
          BarrierError: it is not.
        """
        values = np.unique(self.values[number])
        if len(values) != 1:
            raise BarrierError(
                f"{self._source} inline_mgpu: lanes of one warpgroup come to named barriers {values.tolist()}. "
                "The barrier's number must be the same in all lanes."
            )
        return int(values[0])

    def _perform(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        control = _CONTROL.get(step.name)
        if control is not None:
            return control(self, step, operands, mask)
        apply = OPERATIONS.get(step.name)
        if apply is None:
            raise Unsupported(
                f"{self._source} inline_mgpu: the simulator does not run {step.name}. "
                "Write this step with the language's operations, or run the kernel on a GPU."
            )
        return [apply(step, *operands)]

    def _block(self, block: Block, given: list[Any], mask: np.ndarray) -> list[Any]:
        self.values.update(zip(block.arguments, given, strict=True))
        return self.run(block.steps, mask)

    def _if(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        condition = operands[0]
        taken, *others = step.regions
        then_mask, else_mask = mask & condition, mask & ~condition
        results = self._block(taken, [], then_mask) if then_mask.any() or step.results else []
        rest = self._block(others[0], [], else_mask) if others and (else_mask.any() or step.results) else []
        return [_merge(condition, a, b) for a, b in zip(results, rest, strict=True)] if step.results else []

    def _for(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        counter, end, stride, *carried = operands
        (body,) = step.regions
        while (active := mask & (counter < end)).any():
            after = self._block(body, [counter, *carried], active)
            carried = [_merge(active, new, old) for new, old in zip(after, carried, strict=True)]
            counter = counter + stride
        return carried

    def _thread_id(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        if _dimension(step) > 0:
            return [np.zeros(1, step.types[0].dtype)]
        return [(LANES * self._position.warpgroup + np.arange(LANES)).astype(step.types[0].dtype)]

    def _block_dim(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        size = 1 if _dimension(step) > 0 else LANES * self._position.num_warpgroups
        return [np.array([size], step.types[0].dtype)]

    def _block_id(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        if self._position.block is None:
            raise Unsupported(
                f"{self._source} inline_mgpu: the index of a block in a cluster. Pass lax.axis_index in as an argument."
            )
        indices, sizes = self._position.block
        which = sizes if step.name == "gpu.grid_dim" else indices
        return [np.array([which[_dimension(step)]], step.types[0].dtype)]

    def _lane_id(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        return [(np.arange(LANES) % LANES_PER_WARP).astype(step.types[0].dtype)]

    def _elect(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        return [np.arange(LANES) % LANES_PER_WARP == 0]

    def _shuffle(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        _, value, offset, clamp = operands
        kind = _keyword(step.attributes["kind"])
        lane, value = np.arange(LANES) % LANES_PER_WARP, np.broadcast_to(value, (LANES, *value.shape[1:]))
        full = 0 if kind == "up" else LANES_PER_WARP - 1
        if len(step.results) > 1 or (clamp != full).any():
            raise Unsupported(f"{self._source} inline_mgpu: a shuffle within a part of a warp. Use the whole warp.")
        moved = {"bfly": lane ^ offset, "up": lane - offset, "down": lane + offset, "idx": offset + 0 * lane}[kind]
        inside = (moved >= 0) & (moved < LANES_PER_WARP)
        return [value[np.arange(LANES) - lane + np.where(inside, moved, lane)]]

    def _load(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        kind = _number_type(step.types[0], self._source)
        address = operands[0].element(operands[1:]) if isinstance(operands[0], Memref) else operands[0]
        return [self.memory.load(address, kind.dtype, kind.shape, mask)]

    def _store(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        value, target, *indices = operands
        address = target.element(indices) if isinstance(target, Memref) else target
        self.memory.store(address, value, mask)
        return []

    def _reshaped(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        ref: Memref = operands[0]
        if ref.strides != contiguous(ref.address, ref.dtype, ref.shape).strides:
            raise Unsupported(f"{self._source} inline_mgpu: a ref to rows apart is reshaped. Pass in a whole ref.")
        return [contiguous(ref.address, ref.dtype, step.types[0].shape)]

    def _field(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        # A ref as a struct: allocated pointer, aligned pointer, offset, sizes, strides.
        ref: Memref = operands[0]
        which, *axis = step.attributes["position"]
        fields = {0: ref.address, 1: ref.address, 2: np.zeros(1, np.int64)}
        if axis:
            return [np.array([(ref.shape if which == 3 else ref.strides)[axis[0]]], np.int64)]
        return [fields[which]]

    def _pointer(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        base, *dynamic = operands
        (constant,) = step.attributes["rawConstantIndices"]
        index = dynamic[0] if dynamic else np.array([constant])
        return [base + index.astype(np.int64) * _size_of(step.attributes["elem_type"], self._source)]

    def _subview(self, step: Step, operands: list[Any], mask: np.ndarray) -> list[Any]:
        ref, *dynamic = operands
        parts = {name: list(step.attributes[f"static_{name}"]) for name in ("offsets", "sizes", "strides")}
        offsets = [dynamic.pop(0) if each == _DYNAMIC else np.array([each]) for each in parts["offsets"]]
        if dynamic:
            raise Unsupported(f"{self._source} inline_mgpu: a part of a ref whose size is not a constant.")
        strides = tuple(a * b for a, b in zip(ref.strides, parts["strides"], strict=True))
        sizes, shape = parts["sizes"], step.types[0].shape
        kept = [axis for axis, size in enumerate(sizes) if size != 1] if len(shape) != len(sizes) else range(len(sizes))
        if tuple(sizes[axis] for axis in kept) != tuple(shape):
            raise Unsupported(f"{self._source} inline_mgpu: a part of a ref loses dimensions in an unclear way.")
        return [Memref(ref.element(offsets), ref.dtype, tuple(shape), tuple(strides[axis] for axis in kept))]


_DYNAMIC = -(1 << 63)  # stands for an operand in static lists
_SAME: Callable[..., list[Any]] = lambda lanes, step, operands, mask: [operands[0]]  # noqa: E731
_NOTHING: Callable[..., list[Any]] = lambda lanes, step, operands, mask: []  # noqa: E731

_CONTROL: Mapping[str, Callable[[Lanes, Step, list[Any], np.ndarray], list[Any]]] = {
    "scf.if": Lanes._if,
    "scf.for": Lanes._for,
    "gpu.thread_id": Lanes._thread_id,
    "gpu.block_dim": Lanes._block_dim,
    "gpu.block_id": Lanes._block_id,
    "gpu.grid_dim": Lanes._block_id,
    "nvvm.read.ptx.sreg.laneid": Lanes._lane_id,
    "nvvm.elect.sync": Lanes._elect,
    "nvvm.shfl.sync": Lanes._shuffle,
    **dict.fromkeys(("memref.load", "vector.load", "llvm.load"), Lanes._load),
    **dict.fromkeys(("memref.store", "vector.store", "llvm.store"), Lanes._store),
    **dict.fromkeys(("memref.collapse_shape", "memref.expand_shape"), Lanes._reshaped),
    "memref.subview": Lanes._subview,
    "llvm.extractvalue": Lanes._field,
    "llvm.getelementptr": Lanes._pointer,
    **dict.fromkeys(
        (
            "builtin.unrealized_conversion_cast",
            "memref.cast",
            "memref.memory_space_cast",
            "llvm.ptrtoint",
            "llvm.inttoptr",
            "llvm.addrspacecast",
        ),
        _SAME,
    ),
    **dict.fromkeys(("nvvm.bar.warp.sync", "nvvm.fence.proxy", "nvvm.fence.mbarrier.init"), _NOTHING),
}


def _merge(condition: np.ndarray, a: Any, b: Any) -> Any:
    if condition.all():
        return a
    return np.where(condition.reshape(*condition.shape, *[1] * (a.ndim - 1)), a, b)


def _dimension(step: Step) -> int:
    return "xyz".index(_keyword(step.attributes["dimension"]))


def _keyword(attribute: str) -> str:
    """Returns the last word of an attribute's text: `x` of `#gpu<dim x>`, and of `#gpu.dim<x>` (JAX 0.12)."""
    return re.findall(r"\w+", attribute)[-1]


def _number_type(kind: ValueType, source: object) -> ValueType:
    if kind.dtype is None:
        raise Unsupported(
            f"{source} inline_mgpu: a value of an element type is loaded that the simulator does not have."
        )
    return kind


def _size_of(element: str, source: object) -> int:
    """Returns the bytes of an IR type, as text."""
    count, bits = 1, element
    if element.startswith("vector<"):
        *sizes, bits = element[len("vector<") : -1].split("x")
        count = int(np.prod([int(size) for size in sizes]))
    digits = "".join(each for each in bits if each.isdigit())
    width = 8 if bits.startswith("f8") else int(digits or 0)
    if count * width % 8 or not width:
        raise Unsupported(f"{source} inline_mgpu: a pointer to {element}.")
    return count * width // 8
