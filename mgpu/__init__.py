"""mgpu: Pallas Mosaic GPU kernels on a simulated GPU, recorded event by event.

    import mgpu as plgpu

is a drop-in for `jax.experimental.pallas.mosaic_gpu`. Names load on first use, so that `import mgpu.capture`, and with
it the profiler and the dashboard, need no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgpu.devices import Device as Device
    from mgpu.jax_internals import Transform as Transform
    from mgpu.lang.accesses import async_store_smem as async_store_smem
    from mgpu.lang.accesses import atomic_add as atomic_add
    from mgpu.lang.accesses import atomic_and as atomic_and
    from mgpu.lang.accesses import atomic_max as atomic_max
    from mgpu.lang.accesses import atomic_min as atomic_min
    from mgpu.lang.accesses import atomic_or as atomic_or
    from mgpu.lang.accesses import atomic_xor as atomic_xor
    from mgpu.lang.accesses import load as load
    from mgpu.lang.accesses import store as store
    from mgpu.lang.accesses import transform_ref as transform_ref
    from mgpu.lang.accesses import transpose_ref as transpose_ref
    from mgpu.lang.barriers import Barrier as Barrier
    from mgpu.lang.barriers import ClusterBarrier as ClusterBarrier
    from mgpu.lang.barriers import barrier_arrive as barrier_arrive
    from mgpu.lang.barriers import barrier_arrive_and_wait as barrier_arrive_and_wait
    from mgpu.lang.barriers import barrier_test as barrier_test
    from mgpu.lang.barriers import barrier_wait as barrier_wait
    from mgpu.lang.barriers import set_max_registers as set_max_registers
    from mgpu.lang.block_spec import BlockSpec as BlockSpec
    from mgpu.lang.cluster_refs import cluster_ref as cluster_ref
    from mgpu.lang.cluster_refs import multicast_ref as multicast_ref
    from mgpu.lang.copies import CopyPartition as CopyPartition
    from mgpu.lang.copies import OOBFillMode as OOBFillMode
    from mgpu.lang.copies import async_prefetch as async_prefetch
    from mgpu.lang.copies import commit_smem as commit_smem
    from mgpu.lang.copies import commit_smem_to_gmem_group as commit_smem_to_gmem_group
    from mgpu.lang.copies import copy_gmem_to_smem as copy_gmem_to_smem
    from mgpu.lang.copies import copy_smem_to_gmem as copy_smem_to_gmem
    from mgpu.lang.copies import wait_smem_to_gmem as wait_smem_to_gmem
    from mgpu.lang.hopper import ACC as ACC
    from mgpu.lang.hopper import WGMMAAccumulatorRef as WGMMAAccumulatorRef
    from mgpu.lang.hopper import wgmma as wgmma
    from mgpu.lang.hopper import wgmma_accumulator_load as wgmma_accumulator_load
    from mgpu.lang.hopper import wgmma_wait as wgmma_wait
    from mgpu.lang.inline_mgpu import RefType as RefType
    from mgpu.lang.inline_mgpu import ShapeDtypeStruct as ShapeDtypeStruct
    from mgpu.lang.inline_mgpu import inline_mgpu as inline_mgpu
    from mgpu.lang.launch_dependency import griddepcontrol_launch_dependents as griddepcontrol_launch_dependents
    from mgpu.lang.launch_dependency import griddepcontrol_wait as griddepcontrol_wait
    from mgpu.lang.layouts import Layout as Layout
    from mgpu.lang.layouts import Replicated as Replicated
    from mgpu.lang.layouts import broadcasted_iota as broadcasted_iota
    from mgpu.lang.layouts import layout_cast as layout_cast
    from mgpu.lang.layouts import print_layout as print_layout
    from mgpu.lang.loops import NDLoopInfo as NDLoopInfo
    from mgpu.lang.loops import dynamic_scheduling_loop as dynamic_scheduling_loop
    from mgpu.lang.loops import nd_loop as nd_loop
    from mgpu.lang.loops import planar_snake as planar_snake
    from mgpu.lang.memory import GMEM as GMEM
    from mgpu.lang.memory import REGS as REGS
    from mgpu.lang.memory import SMEM as SMEM
    from mgpu.lang.memory import MemorySpace as MemorySpace
    from mgpu.lang.pipeline import emit_pipeline as emit_pipeline
    from mgpu.lang.reductions import max as max
    from mgpu.lang.reductions import min as min
    from mgpu.lang.reductions import prod as prod
    from mgpu.lang.reductions import sum as sum
    from mgpu.lang.ref_union import RefUnion as RefUnion
    from mgpu.lang.semaphores import SemaphoreSignal as SemaphoreSignal
    from mgpu.lang.semaphores import SemaphoreType as SemaphoreType
    from mgpu.lang.semaphores import semaphore_signal as semaphore_signal
    from mgpu.lang.semaphores import semaphore_signal_multicast as semaphore_signal_multicast
    from mgpu.lang.semaphores import semaphore_signal_parallel as semaphore_signal_parallel
    from mgpu.lang.semaphores import semaphore_wait as semaphore_wait
    from mgpu.lang.tiling import Tiling as Tiling
    from mgpu.lang.transforms import SwizzleTransform as SwizzleTransform
    from mgpu.lang.transforms import TilingTransform as TilingTransform
    from mgpu.lang.transforms import find_swizzle as find_swizzle
    from mgpu.lang.warp_specialized_pipeline import PipelinePipeline as PipelinePipeline
    from mgpu.lang.warp_specialized_pipeline import emit_pipeline_warp_specialized as emit_pipeline_warp_specialized
    from mgpu.lang.warps import WarpMesh as WarpMesh
    from mgpu.lang.warps import warp_map as warp_map
    from mgpu.launch.device_choice import device as device
    from mgpu.launch.device_choice import set_device as set_device
    from mgpu.launch.from_pallas import from_pallas as from_pallas
    from mgpu.launch.kernel import kernel as kernel
    from mgpu.launch.mesh import Mesh as Mesh
    from mgpu.launch.pallas_call import pallas_call as pallas_call
    from mgpu.launch.profile import profile as profile
    from mgpu.launch.race_log import get_races as get_races
    from mgpu.launch.race_log import reset as reset
    from mgpu.launch.torch_kernel import as_torch_kernel as as_torch_kernel
    from mgpu.params import CompilerParams as CompilerParams
    from mgpu.params import LoweringSemantics as LoweringSemantics
    from mgpu.params import TraceScope as TraceScope
    from mgpu.profile_window import ProfileWindow as ProfileWindow
    from mgpu.sim.options import InterpretGPUParams as InterpretGPUParams

_HOME = {
    # launching
    "kernel": "launch.kernel",
    "profile": "launch.profile",
    "from_pallas": "launch.from_pallas",
    "pallas_call": "launch.pallas_call",
    "Mesh": "launch.mesh",
    "as_torch_kernel": "launch.torch_kernel",
    "CompilerParams": "params",
    "LoweringSemantics": "params",
    "TraceScope": "params",
    "InterpretGPUParams": "sim.options",
    "ProfileWindow": "profile_window",
    "Device": "devices",
    "device": "launch.device_choice",
    "set_device": "launch.device_choice",
    "get_races": "launch.race_log",
    "reset": "launch.race_log",
    # memory
    "MemorySpace": "lang.memory",
    "GMEM": "lang.memory",
    "SMEM": "lang.memory",
    "REGS": "lang.memory",
    "TilingTransform": "lang.transforms",
    "SwizzleTransform": "lang.transforms",
    "find_swizzle": "lang.transforms",
    # barriers and registers
    "Barrier": "lang.barriers",
    "barrier_arrive": "lang.barriers",
    "barrier_wait": "lang.barriers",
    "set_max_registers": "lang.barriers",
    # copies
    "copy_gmem_to_smem": "lang.copies",
    "copy_smem_to_gmem": "lang.copies",
    "commit_smem": "lang.copies",
    "commit_smem_to_gmem_group": "lang.copies",
    "wait_smem_to_gmem": "lang.copies",
    # loops and pipelines
    "nd_loop": "lang.loops",
    "NDLoopInfo": "lang.loops",
    "planar_snake": "lang.loops",
    "dynamic_scheduling_loop": "lang.loops",
    "BlockSpec": "lang.block_spec",
    "emit_pipeline": "lang.pipeline",
    "emit_pipeline_warp_specialized": "lang.warp_specialized_pipeline",
    "PipelinePipeline": "lang.warp_specialized_pipeline",
    # tensor core
    "ACC": "lang.hopper",
    "WGMMAAccumulatorRef": "lang.hopper",
    "wgmma": "lang.hopper",
    "wgmma_wait": "lang.hopper",
    "wgmma_accumulator_load": "lang.hopper",
    "ClusterBarrier": "lang.barriers",
    "barrier_arrive_and_wait": "lang.barriers",
    "barrier_test": "lang.barriers",
    "CopyPartition": "lang.copies",
    "OOBFillMode": "lang.copies",
    "async_prefetch": "lang.copies",
    # clusters
    "cluster_ref": "lang.cluster_refs",
    "multicast_ref": "lang.cluster_refs",
    # shared bytes
    "RefUnion": "lang.ref_union",
    # semaphores
    "SemaphoreType": "lang.semaphores",
    "SemaphoreSignal": "lang.semaphores",
    "semaphore_signal": "lang.semaphores",
    "semaphore_wait": "lang.semaphores",
    "semaphore_signal_parallel": "lang.semaphores",
    "semaphore_signal_multicast": "lang.semaphores",
    # accesses by the warpgroup itself
    "load": "lang.accesses",
    "store": "lang.accesses",
    "atomic_add": "lang.accesses",
    "atomic_max": "lang.accesses",
    "atomic_min": "lang.accesses",
    "atomic_and": "lang.accesses",
    "atomic_or": "lang.accesses",
    "atomic_xor": "lang.accesses",
    "async_store_smem": "lang.accesses",
    "transform_ref": "lang.accesses",
    "transpose_ref": "lang.accesses",
    # register layouts
    "Layout": "lang.layouts",
    "Replicated": "lang.layouts",
    "Tiling": "lang.tiling",
    "layout_cast": "lang.layouts",
    "broadcasted_iota": "lang.layouts",
    "print_layout": "lang.layouts",
    # dependent launches
    "griddepcontrol_wait": "lang.launch_dependency",
    "griddepcontrol_launch_dependents": "lang.launch_dependency",
    # warp level
    "WarpMesh": "lang.warps",
    "warp_map": "lang.warps",
    # reductions
    "sum": "lang.reductions",
    "prod": "lang.reductions",
    "max": "lang.reductions",
    "min": "lang.reductions",
    # inline code of the GPU compiler
    "inline_mgpu": "lang.inline_mgpu",
    "RefType": "lang.inline_mgpu",
    "ShapeDtypeStruct": "lang.inline_mgpu",
    "Transform": "jax_internals",
}

__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]  # the names above, once


# Parts of the names in JAX's module that this one does not have, and what such a name needs.
_ELSEWHERE = {
    ("tmem", "tcgen05", "cluster_cancel", "clustercancel"): "a Blackwell GPU; here is a Hopper GPU: use wgmma and SMEM",
    ("multimem", "remote_ref", "peermemref", "alloc_semaphore"): (
        "several GPUs; one is simulated: run the kernel of one device"
    ),
    ("mma", "wait_gmem_to_smem"): "instructions of GPUs before Hopper: use wgmma, and copies with a barrier",
    (
        "im2col",
    ): "TMA's im2col mode, which is not simulated: copy slices of the input, one for each place in the window",
    ("gpu_interpret_mode",): "JAX's own interpreter: pass interpret=mgpu.InterpretGPUParams(...) to the kernel",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        needs = [needs for parts, needs in _ELSEWHERE.items() if any(part in name.lower() for part in parts)]
        why = f": it needs {needs[0]}." if needs and not name.startswith("_") else ""
        raise AttributeError(f"module 'mgpu' has no attribute {name!r}{why}")
    value = getattr(importlib.import_module(f"mgpu.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
