"""Ways in and out of a record: Gesta's own JSON lines, and importers of recorded conversations.

A format of one kind of foreign file is a reader: file in, conversations out, as the entries that they become. How
those are written, once and whole, is the same for all and stands in `importing`.
"""

ORDER = (
    "source",
    "foreign",
    "chat",
    "lines",
    "jsonl",
    "openai_message",
    "openai_exchange",
    "tau_bench",
    "tau2_bench",
    "tau_few_shot",
    "who_and_when",
    "agent_catalog",
    "agentdojo",
    "openai_chat",
    "mini_swe_agent",
    "swe_agent",
    "inspect_message",
    "inspect_event",
    "inspect_sample",
    "inspect_log",
    "spans",
    "python_text",
    "framework_message",
    "langfuse_messages",
    "observed",
    "retold",
    "langfuse_generations",
    "langfuse",
    "activegraph",
    "tau2_voice",
    "swe_interactions",
    "prov",
    "importing",
    "pushing",
)
