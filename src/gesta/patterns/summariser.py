"""An agent that summarises the entries that a compaction hides from another agent; see `gesta.policy.Compact`."""

import hashlib

from gesta.agent import Agent
from gesta.model.request import Model
from gesta.patterns.roles import Prompts, prompt

NAME = "summarise"


def summariser(model: Model | str, prompts: Prompts | None = None) -> Agent:
    """Make an agent that sums up a conversation.

    Args:
        model: the model that writes the summary; a small model will do.
        prompts: texts by name; the text `summarise` replaces the prompt of this agent.
    """
    text = prompt(NAME, prompts)
    meta = {"prompt": {"name": NAME, "digest": hashlib.sha256(text.encode()).hexdigest()}}
    return Agent(NAME, model=model, instructions=text, meta=meta)
