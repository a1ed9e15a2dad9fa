"""Programmatic dependent launch: a kernel that starts before the one ahead of it on the stream has finished."""

from __future__ import annotations

from mgpu.jax_internals import hide_from_source_lines
from mgpu.lang.primitive import bind, define_operation

hide_from_source_lines(__file__)

griddepcontrol_wait_p = define_operation("griddepcontrol_wait", list)
griddepcontrol_launch_dependents_p = define_operation("griddepcontrol_launch_dependents", list)


def griddepcontrol_wait() -> None:
    """Waits until the launch ahead on the stream is complete. On the simulator, which runs one launch, it always is."""
    bind(griddepcontrol_wait_p)


def griddepcontrol_launch_dependents() -> None:
    """Allows the next launch on the stream to start. On the simulator it starts when this one has finished."""
    bind(griddepcontrol_launch_dependents_p)
