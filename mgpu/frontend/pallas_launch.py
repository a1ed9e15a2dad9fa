"""How an imported kernel is launched: axes, name and compiler parameters, from JAX's mesh and parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mgpu.errors import ParamsError
from mgpu.frontend.pallas_names import Author
from mgpu.frontend.program import Launch
from mgpu.params import CompilerParams, LoweringSemantics, TraceScope


def axis_names(mesh: Any) -> dict[Any, str]:
    """Returns our name for each axis of a mesh: its own, or a new one for an axis that `vmap` added."""
    axes = [*mesh.grid_names, *mesh.cluster_names, *([] if mesh.thread_name is None else [mesh.thread_name])]
    taken = [name for name in axes if isinstance(name, str)]
    names: dict[Any, str] = {}
    for number, name in enumerate(axes):
        while f"vmap{number}" in taken:
            number += 1
        names[name] = name if isinstance(name, str) else f"vmap{number}"
    return names


def import_launch(mesh: Any, names: dict[Any, str]) -> Launch:
    """Returns the launch that a mesh describes, with `names` for its axes."""
    return Launch(
        grid=tuple(mesh.grid),
        grid_names=tuple(names[name] for name in mesh.grid_names),
        cluster=tuple(mesh.cluster),
        cluster_names=tuple(names[name] for name in mesh.cluster_names),
        num_threads=mesh.num_threads or 1,
        thread_name=None if mesh.thread_name is None else names[mesh.thread_name],
    )


_ANONYMOUS = "anonymous"


def kernel_name(params: Mapping[str, Any], mesh: Any, author: Author) -> str:
    """Returns the name that a kernel was given, or that of its body function."""
    given = [name for name in (mesh.kernel_name, params.get("name")) if name and name != _ANONYMOUS]
    return given[0] if given else author.source.function


def import_params(params: Any, replaced: Mapping[str, Any]) -> CompilerParams:
    """Returns our compiler parameters for JAX's: the fields of the same names, enumerations by name.

    Fields that steer JAX's compiler only (`profile_bounds_check` of JAX 0.12) are left out.

    Args:
      params: JAX's object, a mapping, or None for the defaults.
      replaced: fields that get other values; named as ours.

    Raises:
      ParamsError: a field with a wrong type or value.
    """
    names = {field.name for field in dataclasses.fields(CompilerParams)}
    if dataclasses.is_dataclass(params):
        params = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    values = {name: value for name, value in (params or {}).items() if name in names}
    for name, kind in (("lowering_semantics", LoweringSemantics), ("profile_trace_scope", TraceScope)):
        if values.get(name) is not None:
            values[name] = kind[values[name].name]
    unknown = sorted(set(replaced) - names)
    if unknown:
        raise ParamsError(
            f"from_pallas: compiler_params has no field {unknown[0]!r}. The fields are {', '.join(sorted(names))}."
        )
    return CompilerParams(**{**values, **replaced})


def accept_params(where: str, params: Any) -> CompilerParams:
    """Returns the compiler parameters that a user gave: ours, JAX's (by their fields), or None for the defaults.

    Args:
      where: begins the error.
      params: what was given.

    Raises:
      ParamsError: something else, or a field of JAX's with a value that makes no sense here.
    """
    if params is None or isinstance(params, CompilerParams):
        return params or CompilerParams()
    if dataclasses.is_dataclass(params) and not isinstance(params, type) and hasattr(params, "profile_space"):
        return import_params(params, {})
    raise ParamsError(f"{where} compiler_params must be an mgpu.CompilerParams, got {type(params).__name__}.")
