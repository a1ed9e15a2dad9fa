"""Runs the command line: `python -m profiler report DIR`."""

from profiler.cli import main

main()
