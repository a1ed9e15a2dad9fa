"""Shadow memory: for every byte of an array, its last write and the reads and atomics since then.

An array is divided into a grid of equal units, the largest that all boxes accessed so far consist of: a kernel that
touches tiles has one unit for each tile, one that touches single elements has as many units as elements. When a box
does not fit, units are divided further. Regions are NumPy views, so overlap is exact, whatever their shapes and types:
an array of which somebody takes a view that is not a box (another type, exchanged or merged dimensions) becomes a row
of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mgpu.sim.races.clocks import Clock
from mgpu.sim.races.report import Access, Place

Index = tuple[int, ...]
Box = list[tuple[int, int]]
"""(start, side) along each dimension."""
Boxes = dict[tuple[Place, Index], "BoxUnits"]

_MOST_REMEMBERED = 1 << 16  # boxes, and views: of a grid of millions, most are accessed once
_MOST_KEPT = 8  # states of a region that a write leaves apart, since whoever made them will come again


class BoxUnits:
    """A box, and the units that it is made of.

    Attributes:
      box: the box.
      found: sides of a unit when it was looked up last, and what selects its units then.
    """

    __slots__ = ("box", "found")

    def __init__(self, box: Box) -> None:
        self.box = box
        self.found: tuple[tuple[int, ...] | None, tuple[Any, ...]] = (None, ())  # threads may share it


_NOTHING: Any = MappingProxyType({})


class State:
    """What has happened to some units.

    Attributes:
      write: the last write.
      reads, atomics: since then, the last one of each agent. Only those that hold something may be added to: the empty
        one is shared, since a large grid has very many states.
    """

    __slots__ = ("atomics", "reads", "write")

    def __init__(self) -> None:
        self.write: Access | None = None
        self.reads: dict[int, Access] = _NOTHING
        self.atomics: dict[int, Access] = _NOTHING

    def copy(self) -> State:
        """Returns a state of its own with the same history."""
        other = State()
        other.write = self.write
        if self.reads:
            other.reads = dict(self.reads)
        if self.atomics:
            other.atomics = dict(self.atomics)
        return other

    def in_flight(self, known: Clock) -> State | None:
        """Returns what of it those who know `known` still have to respect; None if nothing.

        That is: accesses that they do not know of, and a write that is not visible to asynchronous units yet.
        """
        rest, write = State(), self.write
        if write is not None and (is_ahead(write, known) or is_uncommitted(write, known)):
            rest.write = write
        rest.reads = {agent: read for agent, read in self.reads.items() if is_ahead(read, known)}
        rest.atomics = {agent: update for agent, update in self.atomics.items() if is_ahead(update, known)}
        return rest if rest.write is not None or rest.reads or rest.atomics else None

    def add(self, other: State) -> None:
        """Adds what another state says, of memory in which nobody has been ordered after that."""
        reads = list(other.reads.values())
        if self.write is None:
            self.write = other.write
        elif other.write is not None:
            reads.append(other.write)
        self.reads = _newest(self.reads, reads)
        self.atomics = _newest(self.atomics, other.atomics.values())


def _newest(mine: Mapping[int, Access], theirs: Iterable[Access]) -> dict[int, Access]:
    """Returns the last access of each agent."""
    found = dict(mine)
    for access in theirs:
        if access.agent not in found or found[access.agent].time < access.time:
            found[access.agent] = access
    return found


def is_ahead(access: Access, known: Clock) -> bool:
    """True if those who know `known` do not know of an access."""
    return known.get(access.agent, 0) < access.time


def is_uncommitted(write: Access, known: Clock) -> bool:
    """True if a write to SMEM by a warpgroup itself has not been made visible to asynchronous units."""
    return not write.place.is_asynchronous and known.get(-write.agent, 0) < write.time


class Shadow:
    """The history of one array.

    Args:
      array: owns its memory; kept alive, so that its memory is not used again.
      boxes: which box a place accesses with which indices, shared by the arrays of all CTAs, which are alike.
    """

    def __init__(self, array: np.ndarray, boxes: Boxes | None = None) -> None:
        self._kept = [array]
        self._boxes: Boxes = {} if boxes is None else boxes
        self._layout = layout_of(array)
        self._is_flat = False  # taken as a row of bytes
        self._units = tuple(max(1, side) for side in self._layout.shape)  # elements of a unit along each dimension
        self._numbers = np.zeros((1,) * len(self._units), np.int32)  # number of each unit's state
        self._states: list[State] = [State()]
        self._sizes = [1]  # units in each state
        self._free: list[int] = []
        self._regions: dict[tuple[Place, Index], np.ndarray] = {}  # views of `_numbers`

    @property
    def num_units(self) -> int:
        """Units that are told apart."""
        return self._numbers.size

    def keep(self, array: np.ndarray) -> None:
        """Keeps another array of the same memory alive."""
        self._kept.append(array)

    def all_states(self) -> list[State]:
        """Returns the states of all units; they may be changed."""
        return [state for state, size in zip(self._states, self._sizes, strict=True) if size]

    def numbered_states(self) -> list[tuple[int, State]]:
        """Returns all states with their numbers, for `where`."""
        sized = zip(self._states, self._sizes, strict=True)
        return [(number, state) for number, (state, size) in enumerate(sized) if size]

    def where(self, number: int) -> np.ndarray:
        """Returns which units are in a state: a mask whose sides divide the array's, or of a row of its bytes."""
        return self._numbers == number

    def written(self) -> np.ndarray:
        """Returns the elements of the array that somebody has written."""
        is_written = np.array([state.write is not None or bool(state.atomics) for state in self._states])
        mask = is_written[self._numbers]
        for axis, unit in enumerate(self._units):
            mask = np.repeat(mask, unit, axis)
        array = self._kept[0]
        if self._is_flat:
            mask = mask.reshape(-1, array.itemsize).any(1).reshape(array.shape)
        return array[mask]

    def add(self, box: Box, state: State) -> None:
        """Adds what a state says to the states of all units of a box of elements."""
        numbers = self._numbers if self._is_flat else self._find(BoxUnits(box))
        for found in _counted(numbers):
            self._states[self._split(numbers, *found)].add(state)

    def own(self, place: Place, array: np.ndarray, index: Index) -> Sequence[State]:
        """Returns the states of a region, made such that they describe nothing else: they may be changed."""
        numbers = self._regions.get((place, index))
        if numbers is None:
            numbers = self._region(place, array, index)
            if numbers is None:
                return ()
        if numbers.size == 1:
            number = numbers.item()
            return (self._states[number if self._sizes[number] == 1 else self._split(numbers, number, 1)],)
        return [self._states[self._split(numbers, *found)] for found in _counted(numbers)]

    def replace(self, place: Place, array: np.ndarray, index: Index, write: Access) -> Sequence[State]:
        """Gives a region fresh states that begin with a write, and returns those that it had."""
        numbers = self._regions.get((place, index))
        if numbers is None:
            numbers = self._region(place, array, index)
            if numbers is None:
                return ()
        states, sizes = self._states, self._sizes
        if numbers.size == 1 and sizes[number := numbers.item()] == 1:
            before = states[number]
            state = states[number] = State()
            state.write = write
            return (before,)
        found = _counted(numbers)
        old = [states[number] for number, _ in found]
        if len(found) <= _MOST_KEPT and all(sizes[number] == count for number, count in found):
            for number, _ in found:
                state = states[number] = State()
                state.write = write
            return old
        for number, count in found:
            sizes[number] -= count
            if sizes[number] == 0:
                self._free.append(number)
        state = State()
        state.write = write
        numbers[...] = self._new(state, numbers.size)
        return old

    def _split(self, numbers: np.ndarray, number: int, count: int) -> int:
        """Gives the `count` units of a region that are in a state a state of their own, if others are in it too."""
        if self._sizes[number] == count:
            return number
        self._sizes[number] -= count
        new = self._new(self._states[number].copy(), count)
        numbers[numbers == number] = new
        return new

    def _new(self, state: State, size: int) -> int:
        if self._free:
            number = self._free.pop()
            self._states[number], self._sizes[number] = state, size
            return number
        self._states.append(state)
        self._sizes.append(size)
        return len(self._states) - 1

    def _region(self, place: Place, array: np.ndarray, index: Index) -> np.ndarray | None:
        """Returns the state numbers of a region's units, as a view; None if the region is empty."""
        key = place, index
        box = None if self._is_flat else self._boxes.get(key)
        if box is None:
            view = place.view(array, *index)
            if view.size == 0:
                return None
            sides = None if self._is_flat else box_of_view(self._layout, view)
            if sides is None:
                return self._remember(key, self._find_runs(view))
            box = BoxUnits(sides)
            if len(self._boxes) < _MOST_REMEMBERED:
                self._boxes[key] = box
        return self._remember(key, self._find(box))

    def _remember(self, key: tuple[Place, Index], numbers: np.ndarray) -> np.ndarray:
        if len(self._regions) < _MOST_REMEMBERED:
            self._regions[key] = numbers
        return numbers

    def _find(self, part: BoxUnits) -> np.ndarray:
        """Returns the part of `_numbers` that stands for a box; divides units if the box has parts of some."""
        # Other arrays have asked for the same box, mostly when they were divided alike.
        units, slices = part.found
        if units != self._units:
            box = part.box
            units = tuple(math.gcd(unit, *sides) for unit, sides in zip(self._units, box, strict=True))
            self._divide(units)
            pairs = zip(box, units, strict=True)
            slices = (*(slice(start // unit, (start + side) // unit) for (start, side), unit in pairs), ...)
            part.found = units, slices
        return self._numbers[slices]

    def _find_runs(self, view: np.ndarray) -> np.ndarray:
        """Does the same for a view that is not a box of the array, which becomes a row of bytes."""
        self._flatten()
        offset, run, outer = _as_runs(view, address_of(view) - self._layout.address)
        (unit,) = self._units
        unit = math.gcd(unit, offset, run, *(pitch for _, pitch in outer))
        self._divide((unit,))
        numbers, item = self._numbers, self._numbers.itemsize
        shape = (*(count for count, _ in outer), run // unit)
        strides = (*(pitch // unit * item for _, pitch in outer), item)
        return np.ndarray(shape, numbers.dtype, numbers, offset // unit * item, strides)

    def _divide(self, units: tuple[int, ...]) -> None:
        if units == self._units:
            return
        parts = [old // new for old, new in zip(self._units, units, strict=True)]
        for axis, count in enumerate(parts):
            if count > 1:
                self._numbers = np.repeat(self._numbers, count, axis)
        self._sizes = [size * math.prod(parts) for size in self._sizes]
        self._units = units
        self._regions.clear()

    def _flatten(self) -> None:
        """Takes the array as a row of bytes."""
        layout = self._layout
        if self._is_flat:
            return
        self._is_flat = True
        last = self._units[-1] if self._units else 1
        self._divide((*(1 for _ in self._units[:-1]), *self._units[-1:]))
        self._numbers = np.ascontiguousarray(self._numbers).reshape(-1)
        self._units = (last * layout.item_bytes,)
        self._layout = layout.as_bytes()
        self._regions.clear()


class Layout:
    """Where the elements of an array lie, in rows without gaps.

    Args:
      address: of its first byte.
      shape: its sides.
      item_bytes: size of an element.

    Attributes:
      address, shape, item_bytes: as given.
      size: number of elements.
      axes: the dimension along which elements lie a number of bytes apart.
    """

    def __init__(self, address: int, shape: tuple[int, ...], item_bytes: int) -> None:
        self.address = address
        self.shape = shape
        self.item_bytes = item_bytes
        self.size = math.prod(shape)
        pitches = [math.prod(shape[axis + 1 :]) * item_bytes for axis in range(len(shape))]
        self.axes = {pitch: axis for axis, pitch in enumerate(pitches) if shape[axis] > 1}

    def as_bytes(self) -> Layout:
        """Returns the same memory as a row of bytes."""
        return Layout(self.address, (self.size * self.item_bytes,), 1)


def layout_of(array: np.ndarray) -> Layout:
    """Returns the layout of an array; if it has other strides, of the bytes from its first to its last one."""
    if array.flags.c_contiguous:
        return Layout(address_of(array), array.shape, array.itemsize)
    offset, run, outer = _as_runs(array, 0)
    num_bytes = run + sum((count - 1) * pitch for count, pitch in outer)
    return Layout(address_of(array) + offset, (num_bytes,), 1)


def _counted(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Returns the numbers in a region and how often each occurs."""
    size = numbers.size
    if size == 1:
        return [(numbers.item(), 1)]
    if size <= 2 * _MOST_KEPT:
        flat = numbers.ravel().tolist()
        return [(number, flat.count(number)) for number in dict.fromkeys(flat)]
    first = numbers.item(0)
    if (numbers == first).all():
        return [(first, size)]
    found, counts = np.unique(numbers, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))


def address_of(array: np.ndarray) -> int:
    """Returns the address of an array's first element."""
    return array.__array_interface__["data"][0]


def owner_of(view: np.ndarray) -> np.ndarray:
    """Returns the array whose memory a view shows."""
    while isinstance(view.base, np.ndarray):
        view = view.base
    return view


def box_of_view(layout: Layout, view: np.ndarray) -> Box | None:
    """Returns the box of an array that a view shows; None if it is not one."""
    start, remainder = divmod(address_of(view) - layout.address, layout.item_bytes)
    if view.itemsize != layout.item_bytes or remainder or not 0 <= start < layout.size:
        return None
    shape = layout.shape
    starts = []
    for side in reversed(shape):
        start, position = divmod(start, side)
        starts.append(position)
    starts.reverse()
    sides = [1] * len(starts)
    for count, pitch in zip(view.shape, view.strides, strict=True):
        if count > 1:
            axis = layout.axes.get(pitch)
            if axis is None or starts[axis] + count > shape[axis] or sides[axis] > 1:
                return None
            sides[axis] = count
    return list(zip(starts, sides, strict=True))


def _as_runs(view: np.ndarray, offset: int) -> tuple[int, int, list[tuple[int, int]]]:
    """Returns the lowest byte of a view, the bytes of its contiguous runs, and (count, pitch) of how these repeat."""
    axes = []
    for count, pitch in zip(view.shape, view.strides, strict=True):
        if pitch < 0:
            offset += (count - 1) * pitch
        if count > 1 and pitch:
            axes.append((abs(pitch), count))
    run, outer = view.itemsize, []
    for pitch, count in sorted(axes):
        if pitch == run and not outer:
            run *= count
        else:
            outer.append((count, pitch))
    return offset, run, outer


def region_text(view: np.ndarray, name: str) -> str:
    """Returns what a view shows of its array, such as "x[0:64, 8]", or shape and dtype if it is not a box of it."""
    box = box_of_view(layout_of(owner_of(view)), view)
    if box is None:
        return f"{list(view.shape)} of {view.dtype}"
    parts = [f"{start}:{start + side}" if side > 1 else f"{start}" for start, side in box]
    return f"{name}[{', '.join(parts) or '...'}]"
