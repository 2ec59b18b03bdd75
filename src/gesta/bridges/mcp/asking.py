"""Requests that a server makes during a call: to ask a person (elicitation), or to ask the agent's model (sampling).

A question is identified by its text, its schema, and how many times the call has asked it. If the call is repeated in
another attempt (try), recorded answers are used again. If one call asks the same question twice, a person is asked
twice.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from gesta.agent import Agent
from gesta.codec.rows import digest_of
from gesta.function_tool.context import ToolQuestion

MOST_CHARS = 4000
"""Greatest number of characters of a question to a person. A text for the model may be 50 times as long."""
REFUSALS = ("decline", "cancel")
MOST_ASKED = 25
"""Greatest number of questions to a person in one call, over all its attempts."""


class Exchange(Struct):
    """Counts how often one call has asked each question, and how often it has sent each text to the agent's model."""

    asked: dict[str, int] = field(default_factory=dict)
    people: int = 0
    """Number of questions asked of a person so far."""

    def part(self, about: Any) -> str:
        """Count a question or text, and return a name for it: a digest, and how often the call has asked it so far."""
        digest = digest_of(about)[:12]
        self.asked[digest] = self.asked.get(digest, 0) + 1
        return f"{digest}.{self.asked[digest]}"


def question_of(params: Mapping[str, Any], server: str) -> ToolQuestion:
    """Return the question to a person for an elicitation. The answer is an object, or `decline` or `cancel`.

    For a URL that the person is to open, the answer is `accept`, `decline` or `cancel`.
    """
    text = f"{server} asks: {str(params.get('message', ''))[:MOST_CHARS]}"
    if params.get("mode") == "url":
        url = str(params.get("url", ""))[:MOST_CHARS]
        choices = ["accept", *REFUSALS]
        return ToolQuestion(
            f"{text}\nOpen {url}, and answer accept when you have done what it asks.", {"enum": choices}
        )
    schema = params.get("requestedSchema")
    schema = schema if isinstance(schema, dict) else {}
    rest = {name: each for name, each in schema.items() if name in ("properties", "required")}
    return ToolQuestion(text, {"anyOf": [{"type": "object", **rest}, {"enum": list(REFUSALS)}]})


def unsendable(value: Any) -> bool:
    """Return whether a JSON value holds half of a surrogate pair. If it was sent, the connection would end."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    return False


def elicited(answer: Any) -> dict[str, Any]:
    """Return a person's answer (an object, `accept`, `decline` or `cancel`) as the protocol's elicitation result.

    Any other answer counts as `cancel`, also an object that cannot be sent.
    """
    if isinstance(answer, dict) and not unsendable(answer):
        return {"action": "accept", "content": answer}
    return {"action": answer if answer in ("accept", *REFUSALS) else "cancel"}


def sampling_text(params: Mapping[str, Any]) -> str:
    """Return the text of a sampling request.

    Raises ValueError if the text is empty or has more than 200,000 characters, or if the request contains more than
    text.
    """
    texts = list[str]()
    messages = params.get("messages", [])
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            if not isinstance(block, dict) or block.get("type") != "text":
                raise ValueError("only texts can be sampled here")
            text = str(block.get("text", ""))
            texts.append(text if len(messages) == 1 else f"{message.get('role')}: {text}")
    text = "\n\n".join(texts)
    if not text.strip() or len(text) > 50 * MOST_CHARS:
        raise ValueError(f"the text has {len(text)} characters, expected 1 to {50 * MOST_CHARS}")
    return text


def sampling_agent(agent: Agent[Any], params: Mapping[str, Any], server: str) -> Agent[Any]:
    """Return an agent that answers a sampling request: it has the model of the given agent, but no tools."""
    system = str(params.get("systemPrompt") or "")[: 10 * MOST_CHARS]
    return Agent(
        "sampling",
        model=agent.model,
        instructions=system,
        settings=agent.settings,
        price=agent.price,
        hint=f"sampling for the MCP server {server}",
    )
