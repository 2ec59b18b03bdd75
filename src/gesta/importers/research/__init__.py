"""Readers of recordings that research benchmarks of agents have published."""

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
"""The files of this folder in reading order. Each file imports only files before it."""
