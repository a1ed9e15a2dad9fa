"""Launches on the GPU: outputs back to the caller, words to the profile directory; eagerly or as part of a trace."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend import backend

from mgpu.devices import Device, load_device
from mgpu.errors import DeviceError, Unsupported
from mgpu.gpu.capture_reader import read_capture
from mgpu.gpu.target import GpuKernel
from mgpu.profile_dir import check_writable, save_launch

# Part of what JAX calls a device -> the table of its numbers. The first match counts.
_DEVICE_TABLES = (("H100", "h100"), ("H200", "h200"), ("H800", "h100"), ("B200", "b200"))


def device_table(device_kind: str) -> Device:
    """Returns the table of a GPU that JAX calls `device_kind`, such as "NVIDIA H100 80GB HBM3".

    Raises:
      DeviceError: there is no table for it.
    """
    for part, name in _DEVICE_TABLES:
        if part in device_kind:
            return load_device(name)
    known = ", ".join(part for part, _ in _DEVICE_TABLES)
    raise DeviceError(
        f"the GPU {device_kind!r} has no device table; known are {known}. "
        "Set MGPU_TARGET=sim to simulate the kernel instead."
    )


def on_gpu() -> bool:
    """True if JAX's default device is a GPU."""
    return backend.get_default_device().platform in ("gpu", "cuda")


@dataclasses.dataclass(frozen=True, eq=False)
class GpuLauncher:
    """A kernel for the GPU and the count of its launches."""

    kernel: GpuKernel
    launches: Any = dataclasses.field(default_factory=lambda: itertools.count(1))

    @functools.cached_property
    def _compiled(self) -> Callable[..., tuple[list[jax.Array], jax.Array | None]]:
        # One jitted function for each kernel: JAX compiles it once, however often it is launched.
        return jax.jit(self.kernel.raw)

    def __call__(self, *operands: Any) -> list[jax.Array]:
        """Runs the kernel on consts and inputs, and saves the capture of the launch if the program records.

        Inside a trace (`jax.jit`, `vmap`, `scan`) the capture is saved when the device has run; `jax.effects_barrier()`
        waits for that.

        Raises:
          DeviceError: there is no GPU.
          CaptureError: the profile directory cannot be written; found before the launch where possible.
          Unsupported: JAX's module does not have something. (Inside a trace, what only its compiler finds is raised by
            JAX itself, when it compiles.)
        """
        if operands and not on_gpu() and not any(isinstance(operand, Tracer) for operand in operands):
            raise DeviceError(
                f"kernel {self.kernel.program.name}: MGPU_TARGET=gpu, but JAX's default device is "
                f"{backend.get_default_device()}. Without a GPU kernels can be lowered, "
                'jax.jit(f).trace(...).lower(lowering_platforms=("cuda",)), or simulated: unset MGPU_TARGET.'
            )
        if self.kernel.record_format is not None:
            check_writable(self.kernel.program.params.profile_dir)
        try:
            outputs, words = self._compiled(*operands)
        except Unsupported:
            raise
        except NotImplementedError as error:
            program = self.kernel.program
            raise Unsupported(
                f"{program.source} kernel {program.name}: JAX's Mosaic GPU compiler refuses it: "
                f"{str(error).splitlines()[0]} Set MGPU_TARGET=sim to simulate the kernel."
            ) from error
        if words is None:
            return outputs
        if not isinstance(words, Tracer):
            self._save(words)
        elif on_gpu():
            jax.debug.callback(self._save, words)
        # Else a machine without a GPU lowers the kernel for one: JAX has no callback there, and nothing will run.
        return outputs

    def _save(self, words: Any) -> None:
        kernel = self.kernel
        assert kernel.record_format is not None
        capture = read_capture(
            kernel.program, kernel.plan, kernel.record_format, kernel.device, np.asarray(words), next(self.launches)
        )
        save_launch(kernel.program.params.profile_dir, capture)
