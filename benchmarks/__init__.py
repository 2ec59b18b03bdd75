"""Benchmarks: worlds, recorded runs and measurements that exercise the library from outside."""
