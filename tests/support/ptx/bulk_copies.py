"""Asynchronous copies of TMA and between CTAs (PTX ISA 8.7, sections 9.7.9.25 and 9.7.13.15): issued now, done later.

A copy reads its source when it lands, so that a source that changes too early shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from support.ptx.copies import MAP_BYTES, TensorMap
from support.ptx.machine import BLOCKED, Cta, Step, Warp
from support.ptx.operands import Reader, reader
from support.ptx.parse import Address, Instruction, Kernel, PtxError

_INTO_SHARED = ("shared::cta", "shared::cluster")


def translate(instruction: Instruction, kernel: Kernel) -> Step | None:
    """Returns what executes an instruction of this family; None for another."""
    parts = instruction.parts
    if parts[:2] == ("st", "async"):
        return _store_to_peer(instruction, kernel)
    if parts[:3] != ("cp", "async", "bulk"):
        return None
    if parts[3] == "commit_group":
        return _commit
    if parts[3] == "wait_group":
        return _wait_group(instruction, kernel)
    if parts[3] == "prefetch":
        return lambda warp, mask: None
    is_load = parts.index("global") > min((parts.index(p) for p in _INTO_SHARED if p in parts), default=99)
    if parts[3] == "tensor":
        return _tensor_load(instruction, kernel) if is_load else _tensor_store(instruction, kernel)
    return _load(instruction, kernel) if is_load else _store(instruction, kernel)


def _tensor_operand(operand: object, kernel: Kernel) -> Callable[[Warp, int], tuple[TensorMap, list[int]]]:
    """Returns what gives the tensor map and the coordinates of a lane."""
    assert isinstance(operand, Address)
    base, coordinates = reader(operand.base, kernel), [reader(each, kernel) for each in operand.coordinates]

    def read(warp: Warp, lane: int) -> tuple[TensorMap, list[int]]:
        address = int(base(warp)[lane])
        if address % 64:
            raise PtxError(f"a tensor map at {address:#x}, which is no multiple of 64")
        data = warp.machine.memory.at(address).bytes_at(address, MAP_BYTES)
        signed = [int(np.uint32(int(each(warp)[lane]) & 0xFFFFFFFF).astype(np.int32)) for each in coordinates]
        return TensorMap.from_bytes(data.tobytes()), signed

    return read


def _each_lane(act: Callable[[Warp, int], None]) -> Step:
    def step(warp: Warp, mask: np.ndarray) -> None:
        for lane in np.flatnonzero(mask):
            act(warp, int(lane))

    return step


def _tensor_load(instruction: Instruction, kernel: Kernel) -> Step:
    destination, tensor, barrier, *masks = instruction.operands
    read, where, when = _tensor_operand(tensor, kernel), reader(destination, kernel), reader(barrier, kernel)
    is_multicast = "multicast::cluster" in instruction.parts
    peers = reader(masks[0], kernel) if is_multicast else None

    def load(warp: Warp, lane: int) -> None:
        tensor_map, coordinates = read(warp, lane)
        begin, at = _low(where, warp, lane), _low(when, warp, lane)
        if begin % 128:
            raise PtxError(f"a box goes to {begin:#x} in shared memory, which is no multiple of 128")
        cta, begin = warp.cta.at(begin)
        owner, at = warp.cta.at(at)
        ranks = [] if peers is None else [r for r in range(16) if int(peers(warp)[lane]) >> r & 1]
        targets = [(warp.cta.cluster[r], warp.cta.cluster[r]) for r in ranks] if is_multicast else [(cta, owner)]

        def land() -> None:
            places, exists = tensor_map.places(coordinates)
            values = np.zeros(len(places), np.uint64)
            if exists.any():
                region = warp.machine.memory.at(int(places[exists][0]))
                values[exists] = region.load(places[exists], tensor_map.element_bytes)
            for target, barrier_owner in targets:
                _check_running(target)
                target.shared.store(tensor_map.shared_places(begin), values, tensor_map.element_bytes)
                barrier_owner.mbarrier(at).complete(tensor_map.box_bytes)

        warp.machine.later(land)

    return _each_lane(load)


def _tensor_store(instruction: Instruction, kernel: Kernel) -> Step:
    tensor, source = instruction.operands[:2]
    read, where = _tensor_operand(tensor, kernel), reader(source, kernel)

    def store(warp: Warp, lane: int) -> None:
        tensor_map, coordinates = read(warp, lane)
        begin, cta = _low(where, warp, lane), warp.cta
        if begin % 128:
            raise PtxError(f"a box comes from {begin:#x} in shared memory, which is no multiple of 128")

        def land() -> None:
            _check_running(cta)
            values = cta.shared.load(tensor_map.shared_places(begin), tensor_map.element_bytes)
            places, exists = tensor_map.places(coordinates)
            if exists.any():
                region = warp.machine.memory.at(int(places[exists][0]))
                region.store(places[exists], values[exists], tensor_map.element_bytes)

        _in_group(warp, lane, land)

    return _each_lane(store)


def _load(instruction: Instruction, kernel: Kernel) -> Step:
    destination, source, size, barrier = (reader(operand, kernel) for operand in instruction.operands[:4])

    def load(warp: Warp, lane: int) -> None:
        to, count = _low(destination, warp, lane), _count(size, warp, lane)
        address, (owner, at) = int(source(warp)[lane]), warp.cta.at(_low(barrier, warp, lane))
        cta, to = warp.cta.at(to)

        def land() -> None:
            _check_running(cta)
            cta.shared.bytes_at(to, count)[:] = warp.machine.memory.at(address).bytes_at(address, count)
            owner.mbarrier(at).complete(count)

        warp.machine.later(land)

    return _each_lane(load)


def _store(instruction: Instruction, kernel: Kernel) -> Step:
    destination, source, size = (reader(operand, kernel) for operand in instruction.operands[:3])

    def store(warp: Warp, lane: int) -> None:
        begin, count, cta = _low(source, warp, lane), _count(size, warp, lane), warp.cta
        address = int(destination(warp)[lane])

        def land() -> None:
            _check_running(cta)
            warp.machine.memory.at(address).bytes_at(address, count)[:] = cta.shared.bytes_at(begin, count)

        _in_group(warp, lane, land)

    return _each_lane(store)


def _store_to_peer(instruction: Instruction, kernel: Kernel) -> Step:
    target, value, barrier = (reader(operand, kernel) for operand in instruction.operands)
    if instruction.parts[-1] not in ("b32", "u32", "s32", "f32"):
        raise PtxError(f"this machine does not know {instruction.text[:120]!r}")

    def store(warp: Warp, lane: int) -> None:
        cta, address = warp.cta.at(_low(target, warp, lane))
        owner, at = warp.cta.at(_low(barrier, warp, lane))
        bits = value(warp)[lane : lane + 1]

        def land() -> None:
            _check_running(cta)
            cta.shared.store(np.array([address]), bits, 4)
            owner.mbarrier(at).complete(4)

        warp.machine.later(land)

    return _each_lane(store)


def _low(read: Reader, warp: Warp, lane: int) -> int:
    """Returns an address of shared memory: 32 bits."""
    return int(read(warp)[lane]) & 0xFFFFFFFF


def _count(read: Reader, warp: Warp, lane: int) -> int:
    count = int(read(warp)[lane]) & 0xFFFFFFFF
    if count % 16:
        raise PtxError(f"a bulk copy of {count} bytes, which is no multiple of 16")
    return count


def _check_running(cta: Cta) -> None:
    if not any(warp.alive.any() for warp in cta.warps):
        raise PtxError(f"CTA {cta.index} ended while a copy from or to its shared memory was under way")


def _in_group(warp: Warp, lane: int, land: Callable[[], None]) -> None:
    copy = [1]
    warp.open_copies[lane].append(copy)

    def act() -> None:
        land()
        copy[0] = 0

    warp.machine.later(act)


def _commit(warp: Warp, mask: np.ndarray) -> None:
    for lane in np.flatnonzero(mask):
        warp.groups[lane].append(warp.open_copies[lane])
        warp.open_copies[lane] = []


def _wait_group(instruction: Instruction, kernel: Kernel) -> Step:
    """Waits until at most so many of the newest groups are under way; having read the source counts as done here."""
    allowed = reader(instruction.operands[0], kernel)

    def step(warp: Warp, mask: np.ndarray) -> object:
        left = int(allowed(warp)[0])
        for lane in np.flatnonzero(mask):
            groups = warp.groups[lane]
            if any(copy[0] for group in groups[: len(groups) - left] for copy in group):
                return BLOCKED
        return None

    return step
