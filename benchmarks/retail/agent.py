"""The retail desk as a Gesta agent: the tools of a world, and a model that says what was recorded."""

import json
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import msgspec

import gesta
from benchmarks.retail.corpus import INJECTED, Conversation, RecordedCall
from benchmarks.retail.rules import RetailError
from benchmarks.retail.tools import TOOLS, WRITING_TOOLS, Retail
from benchmarks.retail.transcripts import recorded_results
from benchmarks.retail.world import World
from gesta.codec.rows import canonical
from gesta.function_tool.tool import Effect
from gesta.models.replay import from_messages

Faults = dict[tuple[str, bytes], deque[bool]]
"""For each call by name and arguments, in the order of the recording: was its failure put there by the author?"""


def chat_messages(conversation: Conversation) -> list[dict[str, Any]]:
    """Write a conversation as Chat Completions messages, which is what `replay` reads."""
    return [
        {
            "role": message.role,
            "content": message.content,
            "tool_calls": [_call(call) for call in message.calls] or None,
        }
        for message in conversation.messages
        if message.role == "assistant"
    ]


def _call(call: RecordedCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.args)}
    return {"id": call.id, "type": "function", "function": function}


def recorded_model(conversation: Conversation) -> Any:
    """Make a model that answers as the recorded one did; what was said before the first customer is left out."""
    said = chat_messages(conversation)
    first = next(place for place, message in enumerate(conversation.messages) if message.role == "user")
    unprompted = sum(message.role == "assistant" for message in conversation.messages[:first])
    return from_messages(said[unprompted:], name="recorded", stream=False)


def faults(conversation: Conversation) -> Faults:
    """Find which calls the author of the recording made fail."""
    found: Faults = defaultdict(deque)
    for call, answer in conversation.answered():
        found[call.name, canonical(call.args)].append(answer.injected)
    return found


def tools(world: World, dialect: Any, injected: Faults) -> list[gesta.Tool]:
    """Make the world's tools; those that write are idempotent by the key of the call."""
    retail = Retail(world, dialect)
    return [_tool(retail, name, injected) for name in TOOLS[dialect]]


def _tool(retail: Retail, name: str, injected: Faults) -> gesta.Tool:
    def carry_out(context: gesta.Context, **args: Any) -> str:
        flags = injected.get((name, canonical(args)))
        if flags and flags.popleft():
            return INJECTED
        try:
            return retail.call(name, args, context.key)
        except RetailError as error:
            return f"Error: {error}"

    effect: Effect = "idempotent" if name in WRITING_TOOLS else "pure"
    tool = gesta.tool(retail.functions()[name], effect=effect)
    return msgspec.structs.replace(tool, function=carry_out, context_names=("context",))


def reciting(world: World, conversation: Conversation) -> list[gesta.Tool]:
    """Make tools that give what is on record and touch nothing: of a transcript, whose data are not in the corpus."""
    results, functions = recorded_results(conversation), Retail(world, conversation.dialect).functions()

    def recite(name: str) -> gesta.Tool:
        def give(**args: Any) -> str:
            return results[name, canonical(args)].popleft()

        effect: Effect = "idempotent" if name in WRITING_TOOLS else "pure"
        return msgspec.structs.replace(gesta.tool(functions[name], effect=effect), function=give)

    return [recite(name) for name in TOOLS[conversation.dialect]]


def desk(
    conversation: Conversation, world: World, change: Callable[[gesta.Tool], gesta.Tool] | None = None
) -> gesta.Agent:
    """Make the agent of one conversation; `change` may wrap its tools."""
    recites = conversation.source == "few-shot"
    made = reciting(world, conversation) if recites else tools(world, conversation.dialect, faults(conversation))
    system = "\n".join(message.content or "" for message in conversation.messages if message.role == "system")
    return gesta.Agent(
        "retail",
        model=recorded_model(conversation),
        instructions=system,
        tools=[change(tool) for tool in made] if change else made,
        policy=gesta.Policy(retry=gesta.Retry(empty=0), limits=gesta.Limits(requests=None), parallel=1),
    )
