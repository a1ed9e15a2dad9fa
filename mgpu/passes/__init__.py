"""What is decided about a program before it runs: which events to record, whether it is legal, what it needs."""
