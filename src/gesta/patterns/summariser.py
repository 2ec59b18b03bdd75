"""An agent that sums up what another is no longer shown; see `gesta.policy.Compact`."""

import hashlib

from gesta.agent import Agent
from gesta.model.request import Model
from gesta.patterns.roles import Prompts, prompt

NAME = "summarise"


def summariser(model: Model | str, prompts: Prompts | None = None) -> Agent:
    """Make an agent that sums up a conversation.

    Args:
        model: whom to ask; a small model will do.
        prompts: other texts by name, `summarise` for this one.
    """
    text = prompt(NAME, prompts)
    meta = {"prompt": {"name": NAME, "digest": hashlib.sha256(text.encode()).hexdigest()}}
    return Agent(NAME, model=model, instructions=text, meta=meta)
