"""The commands of `mgpu`, a file per family; `profiler.cli` puts them together."""
