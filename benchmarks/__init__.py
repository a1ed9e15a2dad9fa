"""What is measured about this project itself: how near the simulated times are to real ones, and how fast it simulates."""
