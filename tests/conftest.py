"""Settings of the whole suite: reproducible examples, one thread, no GPU unless it is asked for."""

from __future__ import annotations

import os

from hypothesis import settings

# Read when NumPy and JAX are first imported, which is after this file.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

settings.register_profile("reproducible", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))
