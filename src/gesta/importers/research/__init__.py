"""Readers of recordings that benchmarks published."""

ORDER = (
    "tau_bench",
    "tau2_bench",
    "tau_few_shot",
    "tau2_voice",
    "who_and_when",
    "agentdojo",
    "mini_swe_agent",
    "swe_agent",
    "swe_interactions",
    "activegraph",
)
"""Files in reading order: each imports only files before it."""
