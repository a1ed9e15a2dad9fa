"""The real GPU: a KernelProgram replayed as calls of `jax.experimental.pallas.mosaic_gpu`, which jaxlib compiles.

target.py launch.py    program -> JAX function; outputs back to the caller, captures to the profile directory
replay.py rules/       the program's jaxpr, equation by equation; allocations.py, references.py: what refs become
recorder.py ptx.py     events written on the device; capture_reader.py: the words that come back -> Capture
instrument.py          the same recorder in a kernel written for JAX's own module; recording.py: all those of a function
"""

from pathlib import Path

from mgpu.jax_internals import hide_from_source_lines

# Replayed operations belong to the lines that the kernel's author wrote.
hide_from_source_lines(str(Path(__file__).parent))
