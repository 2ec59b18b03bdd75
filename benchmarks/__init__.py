"""Benchmarks: measurements, recorded runs and simulated worlds that use the library from outside."""
