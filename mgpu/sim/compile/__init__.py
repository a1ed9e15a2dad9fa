"""Compiles a program's jaxpr into one Python generator function per warpgroup.

The generator *is* the warpgroup: it yields cycles to spend, or None to be parked until something wakes it. Loops become
Python loops, role branches on the warpgroup's index disappear, tiles become NumPy calls. `compiler.compile_warpgroup`
drives; `scalars`, `tiles`, `refs`, `operations` and `control` hold the rules of each kind of equation.
"""
