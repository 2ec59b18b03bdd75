"""OpenAI chat: JSON lines, or one document, of conversations `{messages, tools?, functions?, …}`, as for fine-tuning.

A system or developer message at the start is the instructions; tools and older functions stand with it in the header.
All else that holds for a conversation, such as `parallel_tool_calls`, is a key-value of its first span. A conversation
has no name and is known by its place in the file. It says neither when nor why it ended; one that ends before an
answer, as a request does, is taken for cut off. `weight` of a message, which is for training, stays in its `extra`.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gesta.importers.chat import Chat
from gesta.importers.foreign import Foreign, Members, Oddities, digest_json
from gesta.importers.format import Format, members_of
from gesta.importers.message import CUT, KEPT, ends_answered, said
from gesta.importers.source import BadImport, Document, Source
from gesta.kinds import Error

AGENT = "agent"
"""Name of the runs; the source does not say who the agent is."""
OFFERED = ("tools", "functions")
FIRST = ("system", "developer")
"""Roles whose message is the instructions, if it is the first."""
MEMBERS = KEPT | members_of(
    """
    path tools functions metadata id parallel_tool_calls
    """
)
"""Members that are kept without a place of their own."""


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Read the conversations of a file, one at a time. Raises BadImport."""
    empty = True
    for document in source.documents():
        empty = False
        yield _conversation(document, source.path, oddities)
    oddities["no-conversations"] += empty


def _conversation(document: Document, path: str, oddities: Oddities) -> Foreign:
    whole = document.value
    messages = whole.get("messages") if isinstance(whole, dict) else None
    if not isinstance(messages, list):
        where = f"document {document.place + 1}"
        raise BadImport(path, f"expected a conversation with its list of messages, found something else in {where}")
    chat = Chat(AGENT, oddities)
    if document.path:
        chat.note("path", document.path)
    for key, value in whole.items():
        if key not in ("messages", *OFFERED) and value is not None:
            chat.note(key, value)
    tools = _tools(whole, chat, oddities) or None
    first = messages[0].get("role") if messages and isinstance(messages[0], dict) else None
    if tools and first not in FIRST:
        chat.header(None, tools=tools)
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        one = said(message, names, oddities)
        if one is None:
            chat.unreadable(message, place)
        else:
            chat.take(one if place else replace(one, tools=tools), place)
    answered = ends_answered(messages)
    error = None if answered else Error(type="unfinished", message=CUT)
    entries = chat.finish("answered" if answered else "cancelled", error, inferred=True)
    return Foreign(id=str(document.place), name=AGENT, digest=digest_json(whole), entries=entries, plain=True)


def _tools(whole: dict[str, Any], chat: Chat, oddities: Oddities) -> list[dict[str, Any]]:
    """Read what a model was offered; what defines no function becomes a note as it came."""
    tools: list[dict[str, Any]] = []
    for key in OFFERED:
        given = whole.get(key)
        every = given if isinstance(given, list) else [] if given is None else [given]
        read = [_tool(one, key, oddities) for one in every]
        tools += [tool for tool in read if tool is not None]
        if None in read:
            chat.note(key, [one for one, tool in zip(every, read, strict=True) if tool is None])
    return tools


def _tool(given: Any, key: str, oddities: Oddities) -> dict[str, Any] | None:
    """Read one definition as `{name, description, args_schema}`; what else it says is under `extra`."""
    whole = given if key == "tools" else {"function": given}
    function = whole.get("function") if isinstance(whole, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        oddities["wrong-type"] += 1
        return None
    around, members = Members(whole, oddities), Members(function, oddities)
    around.take("function", dict)
    around.drop("type", "function")
    tool: dict[str, Any] = {"name": members.take("name", str)}
    tool["description"] = members.take("description", str) or ""
    tool["args_schema"] = members.take("parameters", dict) or {}
    more = members.rest()
    rest = (around.rest() or {}) | ({"function": more} if more else {})
    return tool | ({"extra": rest} if rest else {})


FORMATS = (
    Format(
        "openai-chat",
        "JSON lines of conversations with `messages`, as for fine-tuning",
        "object",
        ("messages",),
        read,
        vague=True,
        members=MEMBERS,
    ),
)
