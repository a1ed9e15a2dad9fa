"""What lanes, warps and CTAs do together: votes, shuffles, barriers, mbarriers (PTX ISA 8.7, section 9.7.13)."""

from __future__ import annotations

import numpy as np

from support.ptx.barriers import CountedBarrier, MBarrier
from support.ptx.lanes import LANES
from support.ptx.machine import BLOCKED, Step, Warp
from support.ptx.operands import reader, register_or_sink
from support.ptx.parse import Address, Instruction, Kernel, Pair, PtxError, Register

_LANES = np.arange(LANES)
_CLUSTER = -1
# How often mbarrier.try_wait comes back although the phase has not ended, as the PTX ISA allows.
_EARLY_RETURNS = 0.05


def translate(instruction: Instruction, kernel: Kernel) -> Step | None:
    """Returns what executes an instruction of this family; None for another."""
    parts = instruction.parts
    if parts[0] == "mbarrier":
        return _mbarrier(instruction, kernel)
    if parts[:2] == ("barrier", "cluster"):
        return _cluster_arrive if parts[2] == "arrive" else _cluster_wait
    if parts[:3] == ("bar", "warp", "sync"):
        return _warp_sync(instruction, kernel)
    if parts[0] in ("bar", "barrier"):
        return _named_barrier(instruction, kernel)
    table = {"elect": _elect, "shfl": _shuffle, "vote": _vote, "activemask": _active}
    return table[parts[0]](instruction, kernel) if parts[0] in table else None


def _together(warp: Warp, mask: np.ndarray, members: np.ndarray) -> bool:
    """True if all living lanes that the instruction names have come to it."""
    named = (members[mask][0] >> _LANES.astype(np.uint64) & np.uint64(1)).astype(bool)
    return not (named & warp.alive & ~mask).any()


def _elect(instruction: Instruction, kernel: Kernel) -> Step:
    """The lowest lane of those that take part is elected."""
    target, members = instruction.operands
    assert isinstance(target, Pair)
    lane, predicate, read = register_or_sink(target.first), register_or_sink(target.second), reader(members, kernel)
    assert predicate is not None

    def step(warp: Warp, mask: np.ndarray) -> object:
        if not _together(warp, mask, read(warp)):
            return BLOCKED
        leader = int(np.flatnonzero(mask)[0])
        elected = np.zeros(LANES, np.uint64)
        elected[leader] = 1
        warp.write(predicate, elected, mask)
        if lane is not None:
            warp.write(lane, np.full(LANES, leader, np.uint64), mask)
        return None

    return step


def _shuffle(instruction: Instruction, kernel: Kernel) -> Step:
    target, *sources = instruction.operands
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
    register = register_or_sink(first)
    assert register is not None
    predicate = register_or_sink(second) if second is not None else None
    readers = [reader(source, kernel) for source in sources]
    mode = instruction.parts[2]

    def step(warp: Warp, mask: np.ndarray) -> object:
        value, by, clamp, members = (read(warp) for read in readers)
        if not _together(warp, mask, members):
            return BLOCKED
        by, segment, bound = by.astype(np.int64) & 31, clamp.astype(np.int64) >> 8 & 31, clamp.astype(np.int64) & 31
        last = (_LANES & segment) | (bound & ~segment)
        if mode == "idx":
            source = (_LANES & segment) | (by & ~segment)
        else:
            source = {"bfly": _LANES ^ by, "up": _LANES - by, "down": _LANES + by}[mode]
        inside = source >= last if mode == "up" else source <= last
        source = np.where(inside, source, _LANES)
        if not mask[source[mask]].all():
            raise PtxError("a lane takes a value from a lane that does not take part")
        warp.write(register, value[source], mask)
        if predicate is not None:
            warp.write(predicate, inside.astype(np.uint64), mask)
        return None

    return step


def _vote(instruction: Instruction, kernel: Kernel) -> Step:
    target, source, members = instruction.operands
    assert isinstance(target, Register)
    mode, read, named = instruction.parts[2], reader(source, kernel), reader(members, kernel)

    def step(warp: Warp, mask: np.ndarray) -> object:
        if not _together(warp, mask, named(warp)):
            return BLOCKED
        votes = (read(warp) != 0)[mask]
        ballot = int(((read(warp) != 0) & mask).astype(np.uint64) @ (np.uint64(1) << _LANES.astype(np.uint64)))
        result = {"any": votes.any(), "all": votes.all(), "uni": votes.all() or not votes.any(), "ballot": ballot}[mode]
        warp.write(target, np.full(LANES, int(result), np.uint64), mask)
        return None

    return step


def _active(instruction: Instruction, _kernel: Kernel) -> Step:
    (target,) = instruction.operands
    assert isinstance(target, Register)

    def step(warp: Warp, mask: np.ndarray) -> None:
        bits = sum(1 << int(lane) for lane in np.flatnonzero(mask))
        warp.write(target, np.full(LANES, bits, np.uint64), mask)

    return step


def _warp_sync(instruction: Instruction, kernel: Kernel) -> Step:
    read = reader(instruction.operands[0], kernel)
    return lambda warp, mask: None if _together(warp, mask, read(warp)) else BLOCKED


def _named_barrier(instruction: Instruction, kernel: Kernel) -> Step:
    """`bar.sync` and `bar.arrive`: all living lanes of a warp come together, and count as a whole warp."""
    if "red" in instruction.parts:
        raise PtxError(f"this machine does not know {instruction.text[:120]!r}")
    number, *counts = (reader(operand, kernel) for operand in instruction.operands)
    waits = "sync" in instruction.parts

    def step(warp: Warp, mask: np.ndarray) -> object:
        if (warp.alive & ~mask).any():
            return BLOCKED
        barrier_id = int(number(warp)[mask][0])
        if not 0 <= barrier_id < 16:
            raise PtxError(f"barrier {barrier_id}; a CTA has 0 to 15")
        barrier = warp.cta.named.setdefault(barrier_id, CountedBarrier())
        if barrier_id not in warp.waits:
            needed = int(counts[0](warp)[mask][0]) if counts else int(np.prod(warp.machine.launch.block))
            generation = barrier.arrive(LANES, needed)
            if not waits:
                return None
            warp.waits[barrier_id] = generation
        if barrier.generation < warp.waits[barrier_id]:
            return BLOCKED
        del warp.waits[barrier_id]
        return None

    return step


def _cluster_arrive(warp: Warp, mask: np.ndarray) -> object:
    if (warp.alive & ~mask).any():
        return BLOCKED
    if _CLUSTER in warp.waits:
        raise PtxError("barrier.cluster.arrive twice without a wait")
    threads = int(np.prod(warp.machine.launch.block)) * len(warp.cta.cluster)
    warp.waits[_CLUSTER] = warp.cta.cluster_barrier.arrive(LANES, threads)
    return None


def _cluster_wait(warp: Warp, mask: np.ndarray) -> object:
    if (warp.alive & ~mask).any():
        return BLOCKED
    if _CLUSTER not in warp.waits:
        raise PtxError("barrier.cluster.wait without an arrive")
    if warp.cta.cluster_barrier.generation < warp.waits[_CLUSTER]:
        return BLOCKED
    del warp.waits[_CLUSTER]
    return None


def _mbarrier(instruction: Instruction, kernel: Kernel) -> Step:
    """The instructions on mbarriers; lanes act one after another."""
    parts, operands = instruction.parts, instruction.operands
    position = next(number for number, operand in enumerate(operands) if isinstance(operand, Address))
    address, *rest = (reader(operand, kernel) for operand in operands[position:])
    if parts[1] in ("try_wait", "test_wait"):
        target = register_or_sink(operands[0])
        if "parity" not in parts or target is None:
            raise PtxError(f"this machine does not know {instruction.text[:120]!r}")
        return _wait(target, address, rest[0], blocks=parts[1] == "try_wait")
    act = {"init": _init, "inval": _invalidate, "arrive": _arrive, "expect_tx": _expect}.get(parts[1])
    if act is None:
        raise PtxError(f"this machine does not know {instruction.text[:120]!r}")

    state = register_or_sink(operands[0]) if position else None

    def step(warp: Warp, mask: np.ndarray) -> None:
        addresses, values = address(warp), [read(warp) for read in rest]
        for lane in np.flatnonzero(mask):
            act(warp, int(addresses[lane]) & 0xFFFFFFFF, [int(value[lane]) & 0xFFFFFFFF for value in values], parts)
        if state is not None:
            warp.write(state, np.zeros(LANES, np.uint64), mask)  # opaque, and only waits by parity are known here

    return step


def _wait(target: Register, address, parity, *, blocks: bool) -> Step:
    def step(warp: Warp, mask: np.ndarray) -> object:
        addresses, parities = address(warp), parity(warp)
        done = np.zeros(LANES, np.uint64)
        lanes = np.flatnonzero(mask)
        where = {(int(addresses[lane]) & 0xFFFFFFFF, int(parities[lane])) for lane in lanes}
        complete = {pair: warp.cta.mbarrier(pair[0]).is_complete(pair[1]) for pair in where}
        if blocks and not any(complete.values()) and warp.machine.random.random() > _EARLY_RETURNS:
            return BLOCKED
        for lane in lanes:
            done[lane] = complete[int(addresses[lane]) & 0xFFFFFFFF, int(parities[lane])]
        warp.write(target, done, mask)
        return None

    return step


def _init(warp: Warp, address: int, values: list[int], _parts: tuple[str, ...]) -> None:
    owner, address = warp.cta.at(address)
    if address % 8:
        raise PtxError(f"an mbarrier at {address:#x}, which is no multiple of 8")
    owner.shared.bytes_at(address, 8) if address not in owner.mbarriers else None
    owner.mbarriers[address] = MBarrier(values[0], values[0])
    owner.shared.is_barrier[(address - owner.shared.base) // 8] = True


def _invalidate(warp: Warp, address: int, _values: list[int], _parts: tuple[str, ...]) -> None:
    warp.cta.mbarrier(address)
    owner, address = warp.cta.at(address)
    del owner.mbarriers[address]
    owner.shared.is_barrier[(address - owner.shared.base) // 8] = False


def _arrive(warp: Warp, address: int, values: list[int], parts: tuple[str, ...]) -> None:
    barrier = warp.cta.mbarrier(address)
    if "expect_tx" in parts:
        barrier.expect(values[0])
        barrier.arrive()
    else:
        barrier.arrive(values[0] if values else 1, may_complete="noComplete" not in parts)


def _expect(warp: Warp, address: int, values: list[int], _parts: tuple[str, ...]) -> None:
    warp.cta.mbarrier(address).expect(values[0])
