"""Makes the results of tool calls for the client: from the outcome of a turn, or from an error.

A turn is one message to an agent and all the work up to its answer. Only an answer is a plain result. Any other
outcome, including that of a turn that waits, has `isError`, so that no client takes it for an answer. The text of such
a result says what to do, and its structured content says the same for programs.
"""

from typing import Any

import msgspec
from mcp_types import CallToolResult, TextContent

from gesta.agent import Agent
from gesta.cli.talk import harmless
from gesta.cli.waits import FIND_OUT, settling, why
from gesta.events import Outcome
from gesta.perform.call_contents import plain
from gesta.text.redactor import SECRETS

META = "gesta/"
"""Prefix of the names of Gesta's members in `_meta`: run, session, turn, reason and key."""


def errored(text: str, structured: Any = None, meta: dict[str, Any] | None = None) -> CallToolResult:
    """Return an error result, which the client's model reads.

    Args:
        structured: the same facts as JSON, for programs.
        meta: members of the result's `_meta`, which the protocol leaves to the server.
    """
    return CallToolResult(
        content=[TextContent(text=harmless(SECRETS.message(text)))],
        structured_content=cleaned(structured),
        is_error=True,
        _meta=meta,
    )


def cleaned(value: Any) -> Any:
    """Return a JSON value that is safe to send (see `sendable`), without the secrets of this process."""
    if value is None:
        return None
    return msgspec.json.decode(SECRETS.bytes(msgspec.json.encode(sendable(plain(value)))))


def sendable(value: Any) -> Any:
    """Return a JSON value in which control characters and invalid Unicode are escaped.

    Invalid Unicode, such as half of a surrogate pair, would break the connection for all requests.
    """
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        return {harmless(str(key)): sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(each) for each in value]
    return value


def result_of(agent: Agent[Any], outcome: Outcome[Any], key: str, named: str) -> CallToolResult:
    """Return the outcome of a turn as the result of a tool call.

    Args:
        agent: the agent that answered.
        key: the key of the message that opened the turn; the client gets it in the result.
        named: the option ` --record FILE` for the commands in the result that a person can run; may be empty.
    """
    facts = {"run": outcome.run, "session": outcome.session, "turn": outcome.turn, "reason": outcome.reason}
    facts |= {"key": key}
    meta = {f"{META}{name}": value for name, value in facts.items()}
    if outcome.reason == "waiting" or outcome.queued:
        return _waiting(outcome, facts, meta, named)
    if outcome.reason != "answered":
        said = f": {outcome.error.message}" if outcome.error is not None else "."
        return errored(f"The turn ended with {outcome.reason}{said}", facts, meta)
    return CallToolResult(
        content=[TextContent(text=harmless(SECRETS.text(outcome.answer or "")))],
        structured_content=_structured(agent, outcome),
        _meta=meta,
    )


def _structured(agent: Agent[Any], outcome: Outcome[Any]) -> Any:
    """Return the answer in the form of the agent's output schema; `None` if the agent has no output type."""
    if agent.answer_type is None:
        return None
    return cleaned({"value": outcome.given} if agent.answer_type.wrapped else outcome.given)


def _waiting(outcome: Outcome[Any], facts: dict[str, Any], meta: dict[str, Any], named: str) -> CallToolResult:
    commands = settling(outcome.waiting, named)
    lines = ["There is no answer yet: the turn waits."]
    if outcome.queued:
        lines = ["There is no answer yet: the message waits behind an earlier turn of its session, which waits."]
    lines += [why(each) for each in outcome.waiting]
    if any(each.what == "doubt" for each in outcome.waiting):
        lines.append(FIND_OUT)
    if commands:
        lines += ["A person settles it with:", *(f"  {each}" for each in commands)]
    lines.append(f"Afterwards call this tool again with the same message, session {facts['session']!r} and key")
    lines[-1] += f" {facts['key']!r}: the same turn goes on, and nothing is done twice."
    waits = [{"for": each.what, "tool": each.tool, "call": each.call, "run": each.run} for each in outcome.waiting]
    return errored("\n".join(lines), {**facts, "queued": outcome.queued, "waiting": waits, "settle": commands}, meta)
