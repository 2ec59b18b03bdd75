"""Reads the items of a reply of OpenAI's Responses API, and makes the items that later requests send back.

The API refuses reasoning without the item that followed it, so either both are sent back or neither. If the provider
does not store replies, it does not know the results of its own tools. Then these are left out, with their reasoning.
The id of an item is sent only if the provider stored the item. Encrypted reasoning is always sent with its id, because
Azure and strict gateways refuse it without.

Source: OpenAI API docs, "Conversation state" and "Reasoning", read 2026-11; "required following item": vercel/ai#7099,
2025-07; not found: vercel/ai#7543, 2025-07-25; its id: microsoft/agent-framework#5633, 2026-06-16,
dotnet/extensions#7629, 2026-07-15; 64 characters: decolua/9router#393, 2026-03-23.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from gesta.message import Call
from gesta.model.request import ReplyCall
from gesta.models.chat_completions import NOT_IN_NAMES
from gesta.models.jsontext import compact, paired

ID = re.compile("[a-zA-Z0-9_-]{1,64}")
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Types of items that call a tool of the program, each with the member that holds the arguments. In a `function_call`
these are JSON, in a `custom_tool_call` any text."""
MEMBERS: dict[str, tuple[str, ...]] = {
    "reasoning": ("summary", "encrypted_content", "content"),
    "tool_search_call": ("arguments", "call_id", "execution", "status"),
    "tool_search_output": ("tools", "call_id", "execution", "status"),
    "compaction": ("encrypted_content",),
    "web_search_call": ("action", "status"),
    "file_search_call": ("queries", "results", "status"),
    "code_interpreter_call": ("container_id", "code", "outputs", "status"),
    "image_generation_call": ("status",),
    "mcp_list_tools": ("tools", "server_label", "error"),
    "mcp_approval_request": ("arguments", "server_label", "name"),
    "mcp_call": ("arguments", "server_label", "name", "output", "error", "approval_request_id", "status"),
}
"""For each type of item: the members to send back besides type and id. The API refuses other members. An item that
lacks the first of its members is not sent back, except for reasoning."""
COMPLETE = ("tool_search_call", "tool_search_output", "compaction")
"""Types of items that may be sent back without an id."""
APART = "\n\n"
"""The text between the messages of one reply, and between the parts of a summary."""


class Said:
    """The texts and calls in the items of one reply."""

    def __init__(self, items: Sequence[Any]) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        self.calls: list[ReplyCall] = []
        self.native: list[dict[str, Any]] = []
        """The items for `again` to send back. Of an item that must not be sent back, only the type is kept."""
        self.needed = False
        """Whether later requests must send back more than the text and the calls."""
        for item in items:
            if isinstance(item, dict):
                self._add(item, texts, thoughts)
        self.text, self.thought = APART.join(texts), APART.join(thoughts)

    def _add(self, item: dict[str, Any], texts: list[str], thoughts: list[str]) -> None:
        type = item.get("type")
        if type == "message" or item.get("role") == "assistant" or (type is None and "content" in item):
            if text := text_of(item):
                texts.append(text)
                self._keep("message", item, {"content": text}, extra="phase")
        elif not isinstance(type, str):
            pass
        elif type in CALLS:
            if call := call_of(item, CALLS[type]):
                self.calls.append(call)
                self._keep("function_call", item if type == "function_call" else {}, {}, extra="namespace")
        else:
            if type == "reasoning" and (thought := thought_of(item)):
                thoughts.append(thought)
            known = MEMBERS.get(type, ())
            kept = {name: item[name] for name in known if item.get(name) is not None}
            if type == "reasoning":
                kept = {name: value for name, value in kept.items() if value}
                if "encrypted_content" in kept:
                    kept.pop("content", None)  # the API refuses both: "array too long … maximum length 0"
            self.needed = self.needed or bool(known)
            self._keep(type, item if known else {}, kept)

    def _keep(self, type: str, item: dict[str, Any], kept: dict[str, Any], *, extra: str = "") -> None:
        """Add an item of the reply to the items that later requests send back.

        Args:
            type: the type of the item.
            item: the item of the reply. Only its id and the member named by `extra` are copied from it.
            kept: more members of the item to add.
            extra: the name of one more member to copy; empty for none.
        """
        texts = {name: item[name] for name in ("id", extra) if isinstance(item.get(name), str) and item[name]}
        self.needed = self.needed or extra in texts
        self.native.append({"type": type, **texts, **kept})


def text_of(item: dict[str, Any]) -> str:
    """Return the text of a message item, refusals included."""
    return "".join(_texts(item.get("content"), "text", "refusal", "transcript"))


def thought_of(item: dict[str, Any]) -> str:
    """Return the readable text of a reasoning item, or its summary if there is no such text."""
    return "".join(_texts(item.get("content"), "text")) or APART.join(_texts(item.get("summary"), "text"))


def call_of(item: dict[str, Any], member: str) -> ReplyCall | None:
    """Return the tool call in an item; `None` if name, arguments and id are all missing.

    Args:
        member: name of the item's member with the arguments. If it is `input`, its value is free text, which becomes
            the only argument, `input`.
    """
    name, found, id = item.get("name"), item.get(member), item.get("call_id") or item.get("id")
    if isinstance(found, str):
        found = paired(found)
    if member == "input":
        args = compact({"input": found or ""}).decode()
    else:
        args = found if isinstance(found, str) else "" if found is None else compact(found).decode()
    if not isinstance(name, str):
        name = ""
    if id is not None and not isinstance(id, str):
        id = compact(id).decode()
    return ReplyCall(name, args or "{}", id or None) if name or found or id else None


def _texts(found: Any, *names: str) -> list[str]:
    """Return the texts of a list of parts, or of a single part. Empty texts are left out.

    Args:
        names: members of a part that may hold its text. The first member that is a text is used.
    """
    texts: list[str] = []
    for part in found if isinstance(found, list) else (found,):
        inner = [part.get(name) for name in names] if isinstance(part, dict) else [part]
        text = next((each for each in inner if isinstance(each, str)), "")
        if text:
            texts.append(paired(text))
    return texts


def call_item(call: Call, kept: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a tool call as an item for a later request.

    Args:
        kept: members of the original item to send along: `id` and `namespace`.
    """
    name, kept = NOT_IN_NAMES.sub("_", call.name)[:64] or "_", kept or {}
    head = {"type": "function_call", **{key: kept[key] for key in ("id",) if key in kept}}
    item = {**head, "call_id": call_id(call.id), "name": name, "arguments": compact(call.args).decode()}
    return item | {key: kept[key] for key in ("namespace",) if key in kept}


def call_id(id: str | None) -> str:
    """Return an id that the provider accepts for a call: the given id, or an id made from its hash."""
    if id is not None and ID.fullmatch(id):
        return id
    return "call_" + hashlib.sha256((id or "").encode("utf-8", "surrogatepass")).hexdigest()[:40]


def again(items: Any, calls: Sequence[Call], *, stored: bool) -> list[dict[str, Any]]:
    """Return the items that a later request sends in place of a recorded reply.

    Args:
        items: the recorded value of `Said.native`.
        calls: the calls to send in place of the calls in `items`. Their arguments may differ from those that the model
            wrote.
        stored: whether the provider stored the reply.

    Returns:
        The items; an empty list if the number of calls differs, or if no item can be sent back.
    """
    kept = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    if sum(item.get("type") == "function_call" for item in kept) != len(calls):
        return []
    left = iter(calls)
    sent: list[dict[str, Any]] = []
    reasons: list[dict[str, Any]] = []
    for item in kept:
        id = item.get("id")
        own = {"id": id} if isinstance(id, str) and ID.fullmatch(id) else {}
        if item.get("type") == "reasoning":
            reasons += _reasoning(item, own, stored=stored)
            continue
        made = _item(item, own if stored else {}, left)
        if made is not None:
            sent += [*(reasons if not stored or own else ()), made]
        reasons = []
    return sent


def _reasoning(item: dict[str, Any], own: dict[str, str], *, stored: bool) -> list[dict[str, Any]]:
    """Return a list with the reasoning item to send back; an empty list if it cannot be sent back.

    Args:
        own: the item's id, as `{"id": …}`, if the provider accepts the id.
        stored: whether the provider stored the reply.
    """
    summary = item.get("summary")
    head = {"type": "reasoning", **own, "summary": summary if isinstance(summary, list) else []}
    for name in ("encrypted_content", "content"):
        if found := item.get(name):
            return [head | {name: found}]
    return [head] if stored and own else []


def _item(item: dict[str, Any], own: dict[str, str], left: Any) -> dict[str, Any] | None:
    """Return one item (not reasoning) in the form to send back; `None` if it must not be sent back.

    Args:
        own: the id to send, as `{"id": …}`; empty to send no id.
        left: an iterator over the calls to send. If the item is a call, the next of these calls replaces it.
    """
    type, text = item.get("type"), item.get("content")
    if type == "function_call":
        return call_item(next(left), {**own, **_chosen(item, "namespace")})
    if type == "message" and isinstance(text, str) and text:
        if not own:
            return {"role": "assistant", "content": text, **_chosen(item, "phase")}
        content = [{"type": "output_text", "text": text, "annotations": []}]
        head = {"type": "message", **own, "role": "assistant", "status": "completed", "content": content}
        return head | _chosen(item, "phase")
    members = MEMBERS.get(type, ()) if isinstance(type, str) else ()
    if members and members[0] in item and (own or type in COMPLETE):
        return {"type": type, **own, **{name: item[name] for name in members if name in item}}
    return None


def _chosen(item: dict[str, Any], name: str) -> dict[str, str]:
    found = item.get(name)
    return {name: found} if isinstance(found, str) and found else {}
