"""Speed and memory against floors measured in the same run: ``python -m benchmarks``."""
