"""The table of Gesta's own formats. It imports nothing, so that the help of `gesta import` lists them at no cost."""

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
"""The modules of Gesta's own formats, listed here so that they are found without an installed distribution. If a file
fits two formats, the first one is used."""
