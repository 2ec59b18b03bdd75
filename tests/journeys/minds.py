"""A model for patterns: what it says depends on the prompt that its agent was made of, and on what it reads."""

import json
from collections.abc import Callable
from typing import Any

import gesta
from gesta.entry import Entry
from gesta.kinds import RequestHeaderContent
from gesta.models.scripted import Keyless
from gesta.record.record import Record

Says = str | list[Any] | Callable[..., Any]
QUICK = gesta.Policy(retry=gesta.Retry(first_wait_s=0.0, empty=0))


def mind(*, stream: bool = True, **roles: Says) -> Keyless:
    """Make a model of what each role says: a text, items by how often it spoke in its run, or a function of messages."""

    def think(messages: list[dict[str, Any]], header: RequestHeaderContent) -> Any:
        meta = header.meta or {}
        says = roles[meta["prompt"]["name"] if "prompt" in meta else "other"]
        if callable(says):
            return says(messages)
        return says if isinstance(says, str) else says[sum(each["role"] == "assistant" for each in messages)]

    return gesta.function(think, stream=stream)


def told(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What a role was asked."""
    return json.loads(messages[0]["content"])


def goals(*texts: Any) -> str:
    return json.dumps({"goals": texts})


def plan(*steps: Any) -> str:
    """Write a plan: each step is a goal, or a goal and what it depends on."""
    pairs = [step if isinstance(step, tuple) else (step, []) for step in steps]
    return json.dumps({"steps": [{"goal": goal, "depends_on": needs} for goal, needs in pairs]})


def joined(messages: list[dict[str, Any]]) -> str:
    """Write an answer that shows all results."""
    return "; ".join(f"{each['goal']}={each['result']}" for each in told(messages)["results"])


async def everything(record: Record) -> list[Entry]:
    """Read all runs of a record."""
    return [entry for row in await record.store.runs() for entry in await record.read(row.run)]
