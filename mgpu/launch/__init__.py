"""Launching: the entry points `kernel` and friends, which device is simulated, and a run as a JAX operation."""
