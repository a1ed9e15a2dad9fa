"""What a rule knows while an equation is compiled: the emitter, the values of variables, the launch, the sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex_core

from mgpu.errors import Unsupported
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Allocation, Path
from mgpu.passes.loaded_data import LoadedData
from mgpu.passes.sites import SitePlan
from mgpu.sim.compile.emitter import Emitter
from mgpu.sim.slots import Slots
from mgpu.sim.values import carrier_dtype


@dataclasses.dataclass(frozen=True)
class Known:
    """A scalar that is known while compiling: a Python bool, int or float."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Local:
    """A value in a local variable of the generated function: a Python scalar or a NumPy array in its carrier.

    Attributes:
      name: the local.
      is_fragment: the lanes hold it as they hold a wgmma accumulator, or it was computed from such a value.
    """

    name: str
    is_fragment: bool = False


@dataclasses.dataclass(frozen=True)
class Storage:
    """What a ref variable stands for at run time.

    Attributes:
      allocation: what was allocated.
      name: local that holds the NumPy array, or the list of barriers (flat).
      phase: local that holds the warpgroup's phase bits of a barrier array; "" if no barrier.
      entry: local that counts how often its shared scope has been entered; "" if it is not shared by the CTA.
      late: local that holds the `LateAllocation` behind `name`, which is None before the warpgroup's first access; ""
        if there is none.
      tiles: local that holds the list of what each slot of a slotted buffer holds, whose array at `name` then holds no
        values; "" if it is not slotted.
      slots: how a slotted buffer is divided.
    """

    allocation: Allocation
    name: str
    phase: str = ""
    entry: str = ""
    late: str = ""
    tiles: str = ""
    slots: Slots | None = None

    def take(self, late: str) -> str:
        """Returns the statement that sets its locals from a `LateAllocation`."""
        if self.tiles:
            return f"{self.name}, {self.tiles} = {late}.get(), {late}.tiles"
        return f"{self.name} = {late}.get()"


@dataclasses.dataclass(frozen=True)
class Options:
    """What a simulation was asked for that changes the generated code.

    Attributes:
      record_cycles: cycles that an event costs; None if nothing is recorded.
      numerics: False simulates time only.
      detect_races: tell the race detector what is accessed and what orders it.
      compute_scale: pairs of a warpgroup and the factor on what its work on the SM's shared pipes takes.
      written_operands: numbers of the GMEM operands in which there can be races: those that the kernel writes.
    """

    record_cycles: int | None = None
    numerics: bool = True
    detect_races: bool = False
    written_operands: frozenset[int] = frozenset()
    compute_scale: tuple[tuple[int, float], ...] = ()


@dataclasses.dataclass
class Context:
    """State of compiling one warpgroup's code.

    Attributes:
      emitter: where the code goes.
      program: what is compiled.
      plan: its sites.
      warpgroup: index of the warpgroup, a constant in its code.
      device: numbers of the simulated device.
      options: what was asked for.
      axes: local names (or constants) of the axis indices.
      values: value of each variable of the regions that are open.
      allocations: what the `run_scoped` at a path allocates as its n-th argument.
      byte_exact: numbers of the allocations that are stored in their own dtype instead of a carrier.
      slotted: how the slotted buffers are divided, by number of the allocation.
      loaded: what has no values, if only time is simulated; else None.
      warp: number of the warp whose code is compiled, inside a warp-level region; else None.
      has_warp_regions: whether the program has such regions anywhere.
      used: variables that some equation reads; results of others need not be computed.
      loop_depth: loops around the equation that is compiled.
      registers_at_end: registers per thread that the last `set_max_registers` leaves; 0 if there is none, None if that
        depends on the run.
      record: local that stores an event here: the warpgroup's recorder, or nothing outside the recorded window.
    """

    emitter: Emitter
    program: KernelProgram
    plan: SitePlan
    warpgroup: int
    device: Any
    options: Options
    axes: Mapping[str, Known | Local]
    values: dict[Any, Known | Local | Storage]
    allocations: Mapping[tuple[Path, int], Allocation]
    byte_exact: frozenset[int] = frozenset()
    slotted: Mapping[int, Slots] = dataclasses.field(default_factory=dict)
    loaded: LoadedData | None = None
    warp: int | None = None
    has_warp_regions: bool = False
    used: set[Any] = dataclasses.field(default_factory=set)  # asked, never iterated
    loop_depth: int = 0
    registers_at_end: int | None = 0
    record: str = "record"

    def is_byte_exact(self, allocation: Allocation) -> bool:
        """True if an allocation is stored in its own dtype, so that its bytes can be seen as another one."""
        return allocation.number in self.byte_exact

    def has_value(self, atom: Any) -> bool:
        """False for what follows from loaded data in a run that simulates time only: nobody computes it."""
        return self.loaded is None or not self.loaded.has(atom)

    def holds_values(self, allocation: Allocation) -> bool:
        """False for what loads, wgmmas, or stores of their results fill in a run that simulates time only."""
        return self.loaded is None or not self.loaded.fills(allocation.number)

    def read(self, atom: Any) -> Known | Local | Storage:
        """Returns the value of a jaxpr variable or literal."""
        if isinstance(atom, jex_core.Literal):
            return self._literal(atom)
        return self.values[atom]

    def _literal(self, atom: Any) -> Known | Local:
        value = np.asarray(atom.val)
        if value.ndim == 0:
            return Known(python_scalar(value, atom.aval.dtype))
        return Local(self.emitter.constant(np.ascontiguousarray(value.astype(carrier_dtype(atom.aval.dtype)))))

    def expression(self, atom: Any) -> str:
        """Returns the Python expression of a value atom."""
        value = atom if isinstance(atom, (Known, Local, Storage)) else self.read(atom)
        if isinstance(value, Known):
            return self.scalar(value.value)
        if isinstance(value, Local):
            return value.name
        raise AssertionError(f"{value.allocation.name} is a ref, not a value")

    def scalar(self, value: Any) -> str:
        """Returns the expression of a known scalar; floats become NumPy scalars so that they keep their width."""
        if isinstance(value, (bool, int)):
            return repr(value)
        return self.emitter.constant(value)

    def unsupported(self, what: str, instead: str) -> Unsupported:
        """Returns the error for something that the simulator does not run."""
        return Unsupported(f"{self.emitter.source} {what}: not available on the simulator. {instead}")


def python_scalar(value: Any, dtype: Any) -> Any:
    """Returns a scalar as generated code carries it: Python bool and int, or a NumPy float of the carrier's width."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return bool(value)
    if jnp.issubdtype(dtype, jnp.integer):
        return int(value)
    return carrier_dtype(dtype).type(np.asarray(value).astype(carrier_dtype(dtype)))


Rule = Callable[[Context, Any, Path], None]
