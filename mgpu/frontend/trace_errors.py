"""What JAX refuses while a kernel's body is traced: told with the author's line, and how to write it in a kernel.

JAX words its errors for its own functions, and its traceback shows the line among many others. Those that kernels run
into most become a `KernelTypeError`; all others keep their type and are given a note with the line.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from mgpu.errors import KernelTypeError, MgpuError, find_user_line
from mgpu.frontend.program import Launch
from mgpu.jax_internals import SourceLine

_OUTLIVED = (
    "A value or a ref ends with the function that it was computed in or passed to: a loop, a branch, a pipeline step, "
    "a run_scoped. Return a value from there, carry it through the loop, or store it to SMEM; use a ref inside."
)
_WHEN_IT_RUNS = "It is known only when the kernel runs:"
_ACCESS = r"for `(?:swap|get|addupdate|masked_swap|masked_load)`\."


class _Hint(NamedTuple):
    """How a message of JAX's is told.

    Attributes:
      pattern: found in it.
      remedy: what to do; may name the kernel's {axes}.
      what: what was got and expected, with groups of the pattern; "" for the message's own first line.
    """

    pattern: str
    remedy: str
    what: str = ""


_HINTS = (
    _Hint(
        rf"Invalid shape {_ACCESS}.* Expected shape: (\(.*?\))\. Value shape: (\(.*?\))\.",
        "Select as much of the ref as the value has, out[pl.ds(start, size)] = value, or reshape or broadcast it.",
        r"a value of shape \2 is stored to a part of shape \1 of a ref",
    ),
    _Hint(
        rf"Invalid dtype {_ACCESS} Ref dtype: (\w+)\. Value dtype: (\w+)",
        "Convert it: out[...] = value.astype(out.dtype).",
        r"a value of dtype \2 is stored to a ref of dtype \1",
    ),
    _Hint(r"^Out of bound slice", "A slice of a ref must lie inside it: check start and size."),
    _Hint(r"`indices` must not be longer than `shape`", "Give at most one index for each dimension of the ref."),
    _Hint(
        r"'AbstractRef' object has no attribute '_(\w+)'",
        "A ref is memory: read it first, x[...].",
        r"the operation \1 is applied to a ref",
    ),
    _Hint(
        r"Attempted boolean conversion of (.*\])",
        f"{_WHEN_IT_RUNS} use pl.when(condition), lax.cond or jnp.where instead of if, lax.while_loop instead of "
        "while, and pl.ds(start, size) instead of start:end.",
        r"Python asks whether \1 is true",
    ),
    _Hint(
        r"The __index__\(\) method was called on (.*\])",
        f"{_WHEN_IT_RUNS} loop with lax.fori_loop instead of range.",
        r"Python takes \1 for an integer",
    ),
    _Hint(
        r"^DShapedArray",
        "Sizes are Python integers: pl.ds(start, size) may start anywhere, but the size is the same in each run.",
        "a slice has a size that is known only when the kernel runs",
    ),
    _Hint(r"numpy\.ndarray conversion method", f"{_WHEN_IT_RUNS} use jax.numpy instead of numpy."),
    _Hint(r"[Uu]nbound axis name: (\w+)", "{axes}", r"the kernel has no axis \1"),
    _Hint(r"^Axis (\d+) is out of bounds for grid", "{axes}", r"the grid has no axis \1"),
    _Hint(r"unexpected tracer", _OUTLIVED),
    _Hint(
        # JAX 0.12 trips over its own records when a `run_scoped` returns a ref.
        r"does not have a corresponding jaxpr input|'Fake' object has no attribute 'arg_names'",
        _OUTLIVED,
        "a ref is used outside of its function",
    ),
)


@contextlib.contextmanager
def explained_errors(name: str, source: SourceLine, launch: Launch) -> Iterator[None]:
    """Explains what the block raises.

    Args:
      name: of the kernel.
      source: its first line, for errors in code that nobody but libraries wrote.
      launch: its axes.

    Raises:
      KernelTypeError: JAX raised what kernels run into most.
    """
    try:
        yield
    except MgpuError:
        raise
    except Exception as error:
        line = find_user_line(error.__traceback__)
        where = f"{source if line is None else SourceLine(*line)} kernel {name}"
        text = str(error)
        for hint in _HINTS:
            found = re.search(hint.pattern, text)
            if found is not None:
                what = found.expand(hint.what) if hint.what else text.partition("\n")[0].strip().rstrip(".")
                raise KernelTypeError(f"{where}: {what}. {hint.remedy.format(axes=_axes(launch))}") from error
        error.add_note(f"While tracing {where}.")
        raise


def outlived(aval: object, line: SourceLine, name: str) -> KernelTypeError:
    """Returns the error for a value, or a ref, that a kernel uses where it does not exist any more.

    Args:
      aval: its type.
      line: where it was made.
      name: of the kernel.
    """
    return KernelTypeError(f"{line} kernel {name}: {aval}, made here, is used outside of its function. {_OUTLIVED}")


def _axes(launch: Launch) -> str:
    axes = [*launch.grid_names, *launch.cluster_names, *([launch.thread_name] if launch.thread_name else [])]
    has = f"Its axes are {', '.join(map(str, axes))}" if axes else "It has no axes"
    return (
        f"{has}: those of grid, cluster and num_threads, as grid_names, cluster_names and thread_name call them. "
        "lax.axis_index(name) tells the position along one."
    )
