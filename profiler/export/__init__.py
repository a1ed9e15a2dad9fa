"""Files for other programs: Perfetto traces. `profiler.store` writes the Parquet tables."""
