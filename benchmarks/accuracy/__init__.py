"""Simulated times against published measurements of Hopper GPUs: real kernels, run by the whole simulator.

`python -m benchmarks.accuracy` runs everything and rewrites `docs/accuracy.md` and `benchmarks/accuracy/results/`.
"""
