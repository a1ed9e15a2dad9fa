"""Measurements of the project itself: how near simulated times are to real ones, and how fast it simulates."""
