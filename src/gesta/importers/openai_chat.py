"""Reads conversations in OpenAI's chat form, `{messages, tools?, functions?, …}`, from JSON lines or one document.

Files for fine-tuning have this form. A system or developer message at the start is the instructions: it goes into the
request header (the entry that states them), with the tools and the older `functions`. Other members of a conversation,
such as `parallel_tool_calls`, are in the state of its first span; a message's `weight` for training is in its `extra`.
A conversation has no name, so its number in the file is its id. The source does not say how a conversation ended: if it
ends before an answer, its last turn is imported as cut off.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gesta.importers.chat import Chat, Said
from gesta.importers.foreign import Foreign, Oddities, digest_json, each_document, list_in
from gesta.importers.format import Format, members_of
from gesta.importers.message import CUT, KEPT, ends_answered, said, tool
from gesta.importers.source import Document, Source
from gesta.kinds import Error

AGENT = "agent"
"""Name of the runs, because the source does not name the agent."""
OFFERED = ("tools", "functions")
FIRST = ("system", "developer")
"""Roles of a first message that holds the instructions."""
MEMBERS = KEPT | members_of("""path tools functions metadata id parallel_tool_calls""")


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each conversation of a file, converted to entries of Gesta. Raises BadImport if the file is unreadable.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    return each_document(
        source, oddities, lambda document, words, odd: _conversation(document, source.path, words, odd)
    )


def _conversation(document: Document, path: str, words: str, oddities: Oddities) -> Foreign:
    whole = document.value
    missing = f"expected a conversation with its list of messages, found something else in {words}"
    messages = list_in(whole, "messages", path, missing)
    chat = Chat(AGENT, oddities)
    chat.notes({"path": document.path or None})
    chat.notes(whole, ("messages", *OFFERED))
    tools = _tools(whole, chat, oddities) or None
    first = messages[0].get("role") if messages and isinstance(messages[0], dict) else None
    if tools and first not in FIRST:
        chat.header(None, tools=tools)
    names: dict[str, str] = {}

    def read(message: Any, place: int) -> Said | None:
        one = said(message, names, oddities)
        return one if place or one is None else replace(one, tools=tools)

    chat.hear(messages, read)
    answered = ends_answered(messages)
    error = None if answered else Error(type="unfinished", message=CUT)
    entries = chat.finish("answered" if answered else "cancelled", error, inferred=True)
    return Foreign(id=str(document.place), name=AGENT, digest=digest_json(whole), entries=entries, plain=True)


def _tools(whole: dict[str, Any], chat: Chat, oddities: Oddities) -> list[dict[str, Any]]:
    """Return the tools that a model was offered. Elements that define no function are kept in the first span."""
    tools: list[dict[str, Any]] = []
    for key in OFFERED:
        given = whole.get(key)
        every = given if isinstance(given, list) else [] if given is None else [given]
        read = [tool(one if key == "tools" else {"function": one}, oddities) for one in every]
        tools += [one for one in read if one is not None]
        if None in read:
            chat.note(key, [one for one, made in zip(every, read, strict=True) if made is None])
    return tools


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
