"""Elicitation: shows what a turn waits for as forms to the person at the client, and records the person's answers.

A wait is one thing that a turn cannot go on without, such as a person's approval of a call. A form of MCP can contain
only plain values at one level. If the answer to a question has another form, the person is asked for JSON in a text
field.
"""

import json
from typing import Any, Literal, assert_never, cast

from mcp_types import ElicitRequestFormParams, ElicitResult
from msgspec import Struct

from gesta.cli.talk import short
from gesta.cli.waits import shown
from gesta.decide.waiting import Waiting, mark
from gesta.errors import NotWaiting, SaidBefore
from gesta.record.record import Record
from gesta.text.visible import visible

VERDICTS = ("done", "failed", "retry")
PLAIN = ("string", "number", "integer", "boolean")
"""JSON types that a form may ask for."""
LONGEST = 1000
"""Greatest number of characters of a reason."""
BY_JSON = "The answer as JSON that fits this schema: "
"""Description of a text field that takes JSON; the schema follows."""


class Form(Struct, frozen=True):
    """A form that asks a person about one wait of a turn."""

    waiting: Waiting
    params: ElicitRequestFormParams
    """The form, as the protocol sends it."""

    @property
    def name(self) -> str:
        """Name of the form. Every process that reads the record computes the same name for the same wait."""
        return f"{self.waiting.what}-{self.waiting.run}-{self.waiting.of}-{mark(self.waiting)}"


def forms(waits: tuple[Waiting, ...] | list[Waiting], agent: str) -> list[Form]:
    """Return a form for each wait that a person can end by filling in a form. The forms name the agent as `agent`."""
    return [Form(each, params) for each in waits if (params := _form(each, agent)) is not None]


def _form(waiting: Waiting, agent: str) -> ElicitRequestFormParams | None:
    if waiting.refused:  # another approval needs a proof (token), which no form can ask for
        return None
    match waiting.what:
        case "approval":
            text = f"The agent {visible(agent)} wants to call {shown(waiting)}. Allow it?"
            schema = _object(
                {
                    "approve": {"type": "boolean", "title": "Allow this call"},
                    "reason": {"type": "string", "title": "Reason", "description": "The agent reads it."},
                },
                "approve",
            )
        case "doubt":
            text = f"The agent {visible(agent)} called {shown(waiting)}, and nobody knows whether it happened."
            text += " Find out first. What became of it?"
            result = {"type": "string", "title": "Result", "description": "What the call gave, if it is done."}
            schema = _object({"verdict": {"type": "string", "enum": list(VERDICTS)}, "result": result}, "verdict")
        case "question" | "budget":
            text = f"The agent {visible(agent)} asks: {visible(waiting.question)}"
            schema = _asked(waiting.schema)
        case "running" | "child" | "timer" | "resume" | "deaths" | "copy":
            return None
        case _:
            assert_never(waiting.what)
    text = "\n".join([text, *([f"The reason: {visible(waiting.why)}"] if waiting.why else []), *waiting.remarks])
    return ElicitRequestFormParams(message=text, requested_schema=schema)


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _asked(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return the JSON Schema of a form that asks for an answer.

    Args:
        schema: JSON Schema of the answer; `None` for any text.
    """
    if schema is None:
        return _object({"answer": {"type": "string"}}, "answer")
    if _flat(schema):
        return schema
    if schema.get("type") in PLAIN:
        return _object({"answer": schema}, "answer")
    told = BY_JSON + json.dumps(schema, ensure_ascii=False)
    return _object({"answer": {"type": "string", "description": told}}, "answer")


def _flat(schema: dict[str, Any]) -> bool:
    """Return whether a schema describes an object whose members are all texts, numbers or booleans."""
    parts = schema.get("properties") if schema.get("type") == "object" else None
    return bool(parts) and isinstance(parts, dict) and all(each.get("type") in PLAIN for each in parts.values())


async def take_in(record: Record, form: Form, result: ElicitResult, by: str) -> bool:
    """Record the answers that a person gave in a form. Return whether the person gave an answer.

    If somebody else has ended the wait in the meantime, the answers are ignored.

    Args:
        by: name of the person.

    Raises:
        AgentError: the answer does not fit the question.
    """
    said = result.content if result.action == "accept" else None
    if said is None:
        return False
    try:
        return await _say(record, form.waiting, said, by)
    except (NotWaiting, SaidBefore):
        return True


async def _say(record: Record, waiting: Waiting, said: dict[str, Any], by: str) -> bool:
    if waiting.what == "approval":
        allowed, why = said.get("approve"), said.get("reason")
        reason = short(why, LONGEST) if isinstance(why, str) and why else None
        if not isinstance(allowed, bool):
            return False
        await (record.approve if allowed else record.deny)(waiting, by=by, reason=reason)
    elif waiting.what == "doubt":
        verdict, text = said.get("verdict"), said.get("result")
        if verdict not in VERDICTS:
            return False
        chosen = cast("Literal['done', 'failed', 'retry']", verdict)
        await record.resolve(waiting, chosen, by=by, result=_read(text) if isinstance(text, str) and text else None)
    else:
        schema = waiting.schema
        if schema is not None and _flat(schema):
            value: Any = {name: each for name, each in said.items() if each is not None}
        elif "answer" not in said:
            return False
        else:
            value = said["answer"]
            if schema is not None and schema.get("type") not in PLAIN and isinstance(value, str):
                value = _read(value)
        await record.answer(waiting, value, by=by)
    return True


def _read(text: str) -> Any:
    """Return the parsed value if a text is JSON, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
