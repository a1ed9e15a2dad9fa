"""The one place that imports `jax._src`: what the language and its front end need and JAX does not export.

Each name says what it gives. Both JAX 0.10.2 and 0.12 have them in the same place and shape unless a comment says
otherwise; everything else in this package uses JAX's public API only.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jax._src import config as _config
from jax._src import core as _core
from jax._src import effects as _effects
from jax._src import source_info_util as _source_info_util
from jax._src.lib import xla_client as _xla_client  # pyright: ignore[reportPrivateImportUsage]
from jax._src.pallas import core as _pallas_core

# What `pl.core_map` maps over, and the element type of semaphores.
from jax._src.pallas.core import Mesh as Mesh
from jax._src.pallas.core import Semaphore as Semaphore
from jax._src.state import types as _state_types

# The transform that `.at[...]` makes.
from jax._src.state.indexing import NDIndexer as NDIndexer

# An AbstractRef together with `.at[...]`, reshape and bitcast transforms: what a sliced ref is while tracing.
from jax._src.state.types import AbstractRef as AbstractRef
from jax._src.state.types import BitcastTransform as BitcastTransform
from jax._src.state.types import ReshapeTransform as ReshapeTransform
from jax._src.state.types import Transform as Transform
from jax._src.state.types import TransformedRef as TransformedRef
from jax._src.state.types import TransposeTransform as TransposeTransform

# Inline assembly, in which the recorder of the GPU target is written; `jax.extend.mlir` leaves this dialect out.
from jaxlib.mlir.dialects import llvm as llvm

Effect = _effects.Effect

_source_info_util.register_exclusion(__file__)


def register_state_type(cls: type, to_ref: Callable[[Any], tuple[Any, Any]]) -> None:
    """Lets `pl.run_state` take values of type `cls`; `to_ref` gives the aval of their ref and the initial value."""
    _state_types._ref_type_aval_mappings[cls] = to_ref


def allow_in_control_flow(effect_type: type) -> None:
    """Lets an effect occur inside cond, scan and while, which refuse unknown effects."""
    _effects.control_flow_allowed_effects.add_type(effect_type)
    _effects.lowerable_effects.add_type(effect_type)


@contextlib.contextmanager
def extra_axis(name: Any, size: int) -> Iterator[None]:
    """Makes `lax.axis_index(name)` work for what is traced meanwhile."""
    with _core.extend_axis_env_nd([(name, size)]):
        yield


@contextlib.contextmanager
def tracing_grid(grid: Sequence[int]) -> Iterator[None]:
    """Makes `pl.program_id` and `pl.num_programs` work while a kernel body is traced."""
    # Replication checks of an enclosing shard_map know nothing of a kernel's own refs (JAX 0.12 would refuse stores).
    with _pallas_core.tracing_grid_env(tuple(grid), ()), _config._check_vma(False):
        yield


@contextlib.contextmanager
def grid_indices(indices: Sequence[Any], sizes: Sequence[int]) -> Iterator[None]:
    """Makes `pl.program_id` and `pl.num_programs` return these while a part of a kernel body is traced."""
    axes = [_pallas_core.GridAxis(index, size) for index, size in zip(indices, sizes, strict=True)]
    with _pallas_core.grid_env(axes):
        yield


class SourceLine(NamedTuple):
    """A line of the kernel author's program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"


_SUMMARY = re.compile(r"(?P<file>.*?):(?P<line>\d+)(?::\d+)? \((?P<function>.*)\)", re.DOTALL)


def source_line(source_info: Any) -> SourceLine:
    """Returns where the user's program made an equation, skipping JAX and the language's own files."""
    match = _SUMMARY.fullmatch(_source_info_util.summarize(source_info))
    if match is None:
        return SourceLine("", 0, "")
    return SourceLine(match["file"], int(match["line"]), match["function"])


def current_trace() -> object:
    """Returns what records the operations that run now, for `line_of_escaped_value`."""
    return _core.trace_ctx.trace


def line_of_escaped_value(value: Any, trace: object) -> SourceLine | None:
    """Returns where a value was computed if it belongs to a trace, or to one inside it; None for others and arrays."""
    inner = getattr(value, "_trace", None)
    while inner is not None and inner is not trace:
        inner = getattr(inner, "parent_trace", None)
    if inner is None:
        return None
    info = getattr(value, "_line_info", None)
    return SourceLine("", 0, "") if info is None else source_line(info)


def current_source_line() -> SourceLine:
    """Returns the user's line that is running now: for errors raised while a kernel is traced."""
    return source_line(_source_info_util.current())


@contextlib.contextmanager
def at_equation(equation: Any) -> Iterator[None]:
    """Gives what is traced inside the source line, named scopes and settings of an equation that it stands for.

    An equation that JAX's own code made has no line of the user's: it keeps that of the equation around it. An error
    raised inside has the stack of the user's program, where it made the equation, as its cause.
    """
    info, outer = equation.source_info, _source_info_util.current()
    traceback = info.traceback if source_line(info).line else outer.traceback
    with (
        _source_info_util.user_context(traceback, name_stack=outer.name_stack + info.name_stack),
        equation.ctx.manager,
    ):
        yield


def current_traceback() -> Any:
    """Returns the stack that what is traced now is attributed to; see `attributed_to`."""
    return _source_info_util.current().traceback


@contextlib.contextmanager
def attributed_to(traceback: Any) -> Iterator[None]:
    """Attributes what is traced inside to the user's line in `traceback`; to the line that runs, if that is None.

    JAX keeps the innermost 32 frames of a stack, which may not reach from an operation in a pipeline to its user.
    """
    state = _source_info_util._source_info_context
    outer = state.context
    state.context = _source_info_util.SourceInfo(traceback, outer.name_stack)
    try:
        yield
    finally:
        state.context = outer


@contextlib.contextmanager
def attributed_to_running_code() -> Iterator[None]:
    """Attributes what is traced inside to the user's line that runs, also in the rule of a derivative.

    JAX calls such rules with the stack of the forward call, to which it then attributes all that they trace: a kernel
    that a derivative launches would have a single line. What JAX evaluates again from a jaxpr keeps its stack.
    """
    _running_code.enter()
    try:
        yield
    finally:
        _running_code.leave()


class _RunningCode(threading.local):
    """Whether a thread attributes what it traces to the code that runs; JAX's function is replaced while one does."""

    _lock, _num_threads, _theirs = threading.Lock(), 0, staticmethod(_source_info_util.current)
    depth = 0

    def enter(self) -> None:
        with self._lock:
            self.depth += 1
            _RunningCode._num_threads += 1
            _source_info_util.current = self._current

    def leave(self) -> None:
        with self._lock:
            self.depth -= 1
            _RunningCode._num_threads -= 1
            if not _RunningCode._num_threads:
                _source_info_util.current = self._theirs

    def _current(self) -> Any:
        info = self._theirs()
        inherits = _source_info_util._source_info_context.context.traceback is not None
        if not self.depth or not inherits or not _runs_user_code():
            return info
        return info.replace(traceback=_xla_client.Traceback.get_traceback())


_running_code = _RunningCode()


def _runs_user_code() -> bool:
    """True if the innermost frame that is not JAX's is the user's, and JAX evaluates no jaxpr inside of it."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if "eval_jaxpr" in code.co_name or code.co_name.startswith("backward_pass"):
            return False
        if code.co_filename != __file__ and _source_info_util.is_user_filename(code.co_filename):
            return True
        frame = frame.f_back
    return False


def outermost_function(equation: Any) -> types.CodeType | None:
    """Returns the code of the outermost of the user's functions in which an equation was traced; None if in none."""
    traceback = equation.source_info.traceback
    codes = [] if traceback is None else traceback.raw_frames()[0]
    users = [code for code in codes if _source_info_util.is_user_filename(code.co_filename)]
    return users[-1] if users else None


def is_internal(module: types.ModuleType) -> bool:
    """True if a module is one of JAX's own, whose names are not to be replaced."""
    return module.__name__.startswith("jax._src")


def hide_from_source_lines(file: str) -> None:
    """Makes source lines skip frames of `file`, so that an operation is attributed to its caller."""
    _source_info_util.register_exclusion(file)


def named_scopes(source_info: Any) -> tuple[Any, ...]:
    """Returns the `jax.named_scope`s around an equation, outermost first, within its own jaxpr.

    Each element has a `name`. Elements are compared by identity, which tells two scopes of one name in a row apart.
    """
    return tuple(element for element in source_info.name_stack.stack if type(element) is _source_info_util.Scope)


def perform_core_maps(mesh_type: type, run: Callable[..., list[Any]]) -> None:
    """Lets `run` perform each `pl.core_map` over a mesh of `mesh_type`, eagerly and where JAX turns refs into values.

    Args:
      mesh_type: a subclass of `Mesh`.
      run: called with the mesh, the jaxpr of the function, the avals of what it closes over, the values of those
        (arrays in place of refs, or refs), and the other parameters. Returns the new values of refs, None for others.
    """
    if hasattr(_pallas_core, "core_map_p"):
        _perform_core_map_primitive(mesh_type, run)
    else:  # JAX 0.12 has one primitive for several meshes.
        _perform_mpmd_map_primitive(mesh_type, run)


def _perform_core_map_primitive(mesh_type: type, run: Callable[..., list[Any]]) -> None:
    primitive: Any = _pallas_core.core_map_p
    theirs = primitive.impl

    def discharge(in_avals: Any, out_avals: Any, *values: Any, jaxpr: Any, mesh: Any, **params: Any) -> Any:
        return run(mesh, jaxpr, in_avals, values, params), ()

    def impl(*values: Any, **params: Any) -> Any:
        if not isinstance(params["mesh"], mesh_type):
            return theirs(*values, **params)
        run(params["mesh"], params["jaxpr"], list(map(_core.typeof, values)), values, params)
        return []

    _pallas_core._core_map_mesh_rules[mesh_type] = discharge
    primitive.def_impl(impl)


def _perform_mpmd_map_primitive(mesh_type: type, run: Callable[..., list[Any]]) -> None:
    from jax._src.pallas.mpmd import mpmd_map_p
    from jax._src.state import discharge as state_discharge

    primitive: Any = mpmd_map_p
    rules: Any = state_discharge._discharge_rules
    their_rule, their_impl = rules[primitive], primitive.impl

    def discharge(context: Any, *values: Any, **params: Any) -> Any:
        mesh = params["meshes"][0]
        if not isinstance(mesh, mesh_type):
            return their_rule(context, *values, **params)
        return run(mesh, params["jaxprs"][0], context.in_avals, values, params), []

    def impl(*values: Any, **params: Any) -> Any:
        mesh = params["meshes"][0]
        if not isinstance(mesh, mesh_type):
            return their_impl(*values, **params)
        run(mesh, params["jaxprs"][0], list(map(_core.typeof, values)), values, params)
        return []

    rules[primitive] = discharge
    primitive.def_impl(impl)


def without_own_refs(closed: Any) -> Any:
    """Returns a closed jaxpr in which the refs that it makes itself (`jax.new_ref`) are values.

    A ref with a memory space can be made under `jax.jit` alone, and JAX 0.10.2 takes none inside a `custom_vmap`.
    """
    if _core.internal_mutable_array_effect not in closed.effects:
        return closed
    from jax._src.state import discharge as state_discharge

    options = {"should_discharge": False}
    if "strip_memory_space" in inspect.signature(state_discharge.discharge_state).parameters:  # JAX 0.12
        options["strip_memory_space"] = True
    return state_discharge.discharge_state(closed, **options)


def scan_split(params: dict[str, Any], invars: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Splits the operands of a scan equation into consts, carry and scanned inputs."""
    if "num_consts" in params:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
        flat = list(invars)
        return flat[:num_consts], flat[num_consts : num_consts + num_carry], flat[num_consts + num_carry :]
    # JAX 0.12 keeps the three groups as a flat tree instead of counts.
    consts, carry, xs = (list(group) for group in params["ft_in"].update(list(invars)).unpack())
    return consts, carry, xs
