"""An agent that writes the summary when a compaction hides entries from another agent; see `gesta.policy.Compact`."""

import hashlib

from gesta.agent import Agent
from gesta.model.request import Model
from gesta.patterns.roles import Prompts, prompt

NAME = "summarise"


def summariser(model: Model | str, prompts: Prompts | None = None) -> Agent:
    """Return an agent that summarises a conversation.

    Args:
        model: the model that writes the summary. A small model is enough.
        prompts: texts by name; the text `summarise` replaces the agent's prompt.
    """
    text = prompt(NAME, prompts)
    meta = {"prompt": {"name": NAME, "digest": hashlib.sha256(text.encode()).hexdigest()}}
    return Agent(NAME, model=model, instructions=text, meta=meta)
