"""Functions of `inline_mgpu`, run lane by lane: their IR (`mgpu.frontend.inline_code`) on NumPy arrays of 128 lanes.

`program.py` is what generated code calls; `lanes.py` steps through blocks; `arithmetic.py` and `memory.py` say what the
operations do, `barriers.py` which of them meet other warps, and `cost.py` what they take.
"""
