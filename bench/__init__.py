"""Measurements, each beside its bound: `python -m bench`. See docs/benchmarks.md."""
