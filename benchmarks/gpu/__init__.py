"""Microbenchmarks of a device, and what recording costs: on the GPU that is here, or on the simulated one."""
