"""The table of Gesta's own import formats. It imports nothing, so `gesta import --help` can list them quickly."""

OWN = {
    "gesta": "gesta.bridges.jsonl",
    "tau-bench": "gesta.importers.research.tau_bench",
    "tau2-bench": "gesta.importers.research.tau2_bench",
    "tau2-voice": "gesta.importers.research.tau2_voice",
    "langfuse": "gesta.importers.langfuse",
    "activegraph": "gesta.importers.research.activegraph",
    "tau-bench-few-shot": "gesta.importers.research.tau_few_shot",
    "who-and-when": "gesta.importers.research.who_and_when",
    "agentdojo": "gesta.importers.research.agentdojo",
    "mini-swe-agent": "gesta.importers.research.mini_swe_agent",
    "swe-agent": "gesta.importers.research.swe_agent",
    "inspect": "gesta.importers.inspect_log",
    "swe-agent-interactions": "gesta.importers.research.swe_interactions",
    "agent-catalog": "gesta.importers.agent_catalog",
    "openai-chat": "gesta.importers.openai_chat",
}
"""For each format, the module that reads it. They are listed here so that Gesta finds them even if it is not installed
as a package. If a file fits two formats, the first one is used."""
