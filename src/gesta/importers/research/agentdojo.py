"""Reads AgentDojo: runs of a task, with or without an attack by an injected task, `{suite_name, …, messages, …}`.

A file holds one run, JSON lines of runs, or lines `{path, data}`. All facts about a run are in the state of its first
span. `security: true` means that the attack succeeded, but only if `injection_task_id` is set. A pipeline may be a
model with a defence, so no model is inferred from its name. If a call failed, the text that the model was shown is in
`error`. This text becomes the result, marked as inferred. A run may have verdicts without any message. It has no times,
only a duration.

A turn is the agent's work on one message of the user.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gesta.importers.chat import Chat, Said
from gesta.importers.foreign import (
    Foreign,
    Members,
    Oddities,
    digest_json,
    each_document,
    identical,
    list_in,
    plain_name,
)
from gesta.importers.format import Format, members_of
from gesta.importers.message import CUT, KEPT, Form, ends_answered, is_parts, said
from gesta.importers.source import Document, Source
from gesta.kinds import Error, Reason

NAMED = ("pipeline_name", "suite_name", "user_task_id", "attack_type", "injection_task_id")
"""Members whose values together are the id of a run without a path."""
HIDDEN = ("thinking", "redacted_thinking")
"""Types of parts that the model did not show. The text of the first type becomes a thought."""
FORM = Form(name=("function",), arguments=("args",), types=(), text="content", hidden=HIDDEN)
MEMBERS = KEPT | members_of(
    """path suite_name pipeline_name user_task_id injection_task_id injections attack_type messages error utility
    security duration benchmark_version evaluation_timestamp agentdojo_package_version tool_call args
    placeholder_args"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each run of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    return each_document(source, oddities, lambda document, words, odd: _run(document, source.path, words, odd))


def _run(document: Document, path: str, words: str, oddities: Oddities) -> Foreign:
    whole = document.value
    missing = f"expected a run with its list of messages, found something else in {words}"
    messages = list_in(whole, "messages", path, missing)
    name = plain_name(whole.get("pipeline_name")) or "agent"
    chat = Chat(name, oddities)
    chat.notes({"path": document.path or None})
    chat.notes(whole, ("messages",))
    waiting: list[Any] = []
    chat.hear(messages, lambda message, _: _said(message, waiting, oddities))
    reason, error = _ending(whole.get("error"), messages)
    entries = chat.finish(reason, error, inferred=reason != "failed")
    return Foreign(id=_own(document), name=name, digest=digest_json(whole), entries=entries, plain=True)


def _own(document: Document) -> str:
    """Return an id for a run: its path in the file, else the names of its suite and tasks, else its number."""
    if path := plain_name(document.path.removesuffix(".json")):
        return path
    return plain_name(*(document.value.get(key) for key in NAMED)) or str(document.place)


def _ending(error: Any, messages: list[Any]) -> tuple[Reason, Error | None]:
    """Return the reason why the last turn ended, and the turn's error.

    Args:
        error: the error that stopped the pipeline, if any. Then the reason is `failed`.
        messages: all messages of the run. The reason is `answered` if the last one is an answer, else `limit`.
    """
    if error:
        return "failed", Error(type="pipeline", message=error if isinstance(error, str) else "See the note `error`.")
    if ends_answered(messages):
        return "answered", None
    return "limit", Error(type="steps", message=CUT)


def _said(message: Any, waiting: list[Any], oddities: Oddities) -> Said | None:
    """Return a message; `None` if the value is not a message.

    Args:
        waiting: calls of the last assistant message that have no result yet, in the form of the source. This function
            updates the list.
    """
    words = said(message, {}, oddities, FORM)
    if words is None:
        return None
    if words.role == "tool":
        return _result(words, message, waiting, oddities)
    if words.role == "assistant":
        calls = message.get("tool_calls")
        waiting[:] = calls if isinstance(calls, list) else []
        thought = _thinking(message.get("content"))
        return words if thought is None else replace(words, reasoning=thought)
    return words


def _thinking(content: Any) -> str | None:
    """Return the model's reasoning; `None` if the source does not have it as text."""
    parts = content if isinstance(content, list) and is_parts(content) else []
    thoughts = [part.get(FORM.text) for part in parts if part["type"] == HIDDEN[0]]
    return "\n".join(thought for thought in thoughts if isinstance(thought, str)) or None


def _result(words: Said, message: dict[str, Any], waiting: list[Any], oddities: Oddities) -> Said:
    members = Members(words.extra or {}, oddities)
    call, copy, error = _answered(words.call_id, waiting), message.get("tool_call"), members.take("error", str)
    if copy is not None and identical(copy, call):
        members.take("tool_call", object)
    rest, known = members.rest() or {}, error is not None or message.get("error", False) is None
    if error and words.result not in ("", None):
        rest["content"] = message["content"]
    return replace(
        words,
        result=error or words.result,
        error=bool(error) if known else None,
        inferred=("tool_result",) if error else (),
        extra=rest or None,
    )


def _answered(call_id: str | None, waiting: list[Any]) -> Any:
    """Remove and return the call that a result answers; `None` if no waiting call fits.

    A result with an id answers the call with the same id. A result without an id answers the first call that waits.
    """
    for place, call in enumerate(waiting):
        if call_id is None or (isinstance(call, dict) and call.get("id") == call_id):
            return waiting.pop(place)
    return None


FORMATS = (
    Format(
        "agentdojo",
        "runs of tasks with `suite_name` and `user_task_id`",
        "object",
        ("suite_name", "user_task_id"),
        read,
        members=MEMBERS,
    ),
)
