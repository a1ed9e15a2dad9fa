"""How fast kernels are simulated: seconds, events and memory by size, and against JAX's own GPU interpreter.

`python -m benchmarks.speed` measures and rewrites `docs/performance.md`; the figures belong to the machine at hand.
"""
