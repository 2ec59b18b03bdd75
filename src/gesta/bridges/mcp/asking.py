"""What a server asks for in the middle of a call: a person's answer, or words of the agent's model.

A question is known by its text, its schema and how often it was asked: an answer on record is given again when the call
is made again, and a question that is asked a second time is a second question.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from gesta.agent import Agent
from gesta.codec.rows import digest_of
from gesta.function_tool.context import ToolQuestion

MOST_CHARS = 4000
"""The most characters of a question or of a text for the model that a server may send."""
REFUSALS = ("decline", "cancel")


class Exchange(Struct):
    """How often a call was asked each question, and the agent's model each text."""

    asked: dict[str, int] = field(default_factory=dict)

    def part(self, about: Any) -> str:
        """Return the name of a further question or text: its digest, and its number among the equal ones."""
        digest = digest_of(about)[:12]
        self.asked[digest] = self.asked.get(digest, 0) + 1
        return f"{digest}.{self.asked[digest]}"


def question_of(params: Mapping[str, Any], server: str) -> ToolQuestion:
    """Return the question of an elicitation, whose answer fits the server's schema, or is `decline` or `cancel`."""
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


def elicited(answer: Any) -> dict[str, Any]:
    """Return the result of an elicitation from a person's answer."""
    if isinstance(answer, dict):
        return {"action": "accept", "content": answer}
    return {"action": answer if answer in ("accept", *REFUSALS) else "cancel"}


def sampling_text(params: Mapping[str, Any]) -> str:
    """Return what the agent's model is asked for a server. Raises ValueError for anything but a short text."""
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
    """Return the agent that is asked for a server: the model of an agent, without its tools and instructions."""
    system = str(params.get("systemPrompt") or "")[: 10 * MOST_CHARS]
    return Agent(
        "sampling",
        model=agent.model,
        instructions=system,
        settings=agent.settings,
        price=agent.price,
        hint=f"sampling for the MCP server {server}",
    )
