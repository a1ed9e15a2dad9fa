"""Data races: accesses to shared or global memory that nothing orders, found by vector clocks.

Every warpgroup, and every warp inside a warp-level region, is an **agent** with a clock that steps at each release: an
arrival on a barrier, a signal of a semaphore. What it knows of the others' clocks travels with them to whoever waits
(Fidge and Mattern's vector clocks; accesses are kept as epochs as in FastTrack, Flanagan and Freund, PLDI 2009).
Asynchronous work is an agent of its own:

- a TMA load is known to those who wait for the phase that its bytes complete;
- a warpgroup's wgmmas and TMA stores are known to it up to where it waited for them, and to others from there on. A
  store's read of SMEM and its write of GMEM are two agents: `wait_smem_to_gmem(n, wait_read_only=True)` tells of the
  first only;
- what the warpgroup itself writes to SMEM is visible to TMA and the tensor core only after a `commit_smem` that comes
  after it: by the writer, or by somebody who has waited for the writer (PTX ISA, proxies: a proxy fence anywhere on the
  path is enough). `commit_smem` is a fence for SMEM, so nothing makes a plain write of GMEM visible to TMA in the same
  launch.

Scopes (`run_scoped`) side by side lie in the same bytes of SMEM. What is in flight when one ends has to be over before
the next one writes there, and what it wrote needs a `commit_smem` before TMA does.

Reads of memory that nobody has written are told of, too: of SMEM, and of outputs.

When a CTA exits, its SMEM ends: copies in flight there, and accesses of its peers to it or arrivals on its barriers
that it has not waited for, are reported like races (CUDA C++ Programming Guide, distributed shared memory: all accesses
have to be over before the block exits).

Two deliberate leniences: a read by a warpgroup that an arrival hands over needs no fence before a TMA load overwrites
what was read, since it has its value by then; and atomics do not race with atomics.

`report.py` words what is found, `shadow.py` remembers what was done to which bytes, `reuse.py` hands that over from
scope to scope, `clocks.py` says who knows what, `signals.py` what a semaphore tells, and `detector.py`
compares. `cta.py` watches a CTA in full; `cluster.py` watches only what clusters do to each other in GMEM, which is
cheap.
"""

from mgpu.sim.races.cta import CtaRaces
from mgpu.sim.races.report import Place, Race, UnwrittenRead
from mgpu.sim.races.watching import GlobalRaces, Watchers

__all__ = ["CtaRaces", "GlobalRaces", "Place", "Race", "UnwrittenRead", "Watchers"]
