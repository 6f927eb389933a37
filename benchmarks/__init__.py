"""Measurements, run by hand: `.venv/bin/python -m benchmarks.bench_sending --help`."""
