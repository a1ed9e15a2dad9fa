"""The real GPU: a KernelProgram replayed as calls of `jax.experimental.pallas.mosaic_gpu`, which jaxlib compiles.

    target.py           program -> JAX function
    replay.py rules/    the program's jaxpr, equation by equation; allocations.py and references.py: what refs become
    recorder.py         events written on the device, by PTX; capture_reader.py: the words that come back -> Capture
"""
