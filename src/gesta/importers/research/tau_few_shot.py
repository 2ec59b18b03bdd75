"""Reads tau-bench's few-shot transcripts: JSON lines `{"messages_display": text}`, each a conversation as plain text.

    user: Where is my order?
    assistant: None
    tool: {"order_id": "#W1"}

The text lacks the calls. A message of the assistant made a call if it is `assistant: None` or comes right before a
result. Such a call gets the name `?` and no arguments, and is marked as inferred. A result without a call would have to
be shown to a model as a text of the user. A line that begins with a role begins a message, even if it was part of one.
A turn is the agent's work on one message of the user.
"""

import re
from collections.abc import Iterator

from gesta.importers.chat import Chat, Made, Said
from gesta.importers.foreign import Foreign, Oddities, digest_json, each_document, object_of
from gesta.importers.format import Format, members_of
from gesta.importers.research.tau_bench import AGENT, STOP
from gesta.importers.source import BadImport, Document, Source
from gesta.kinds import Error, Reason

TEXT = "messages_display"
ROLE = re.compile(r"(?:\A|\n)(system|user|assistant|tool): ")
NOTHING = "None"
"""The text of a message without words."""
DONE = "Transfer successful"
"""The result of the tool that transfers the user to a person, which ends a conversation."""
LOST = Made(name=None, args=None, id=None, lost=True)
MEMBERS = members_of("""path messages_display""")


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each transcript of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    return each_document(source, oddities, lambda document, words, odd: _transcript(document, source.path, words, odd))


def _transcript(document: Document, path: str, words: str, oddities: Oddities) -> Foreign:
    text = object_of(document.value).get(TEXT)
    if not isinstance(text, str):
        raise BadImport(path, f"expected an object with the text {TEXT!r}, found something else in {words}")
    chat = Chat(AGENT, oddities)
    chat.notes({"path": document.path or None})
    chat.notes(document.value, (TEXT,))
    before, *parts = ROLE.split(text)
    messages = list(zip(parts[::2], parts[1::2], strict=True))
    if before:
        chat.unreadable(before, 0)
    roles = [role for role, _ in messages]
    for place, (role, said) in enumerate(messages):
        chat.take(_said(role, said, _results(roles, place + 1) if role == "assistant" else 0), place + bool(before))
    entries = chat.finish(*_ending(*messages[-1] if messages else ("", "")), inferred=True)
    return Foreign(id=str(document.place), name=AGENT, digest=digest_json(document.value), entries=entries, plain=True)


def _results(roles: list[str], start: int) -> int:
    """Return the number of consecutive roles `tool`, from the index `start` on."""
    end = start
    while end < len(roles) and roles[end] == "tool":
        end += 1
    return end - start


def _said(role: str, text: str, results: int) -> Said:
    """Return a message. A message of the assistant gets a call for each result that follows it.

    An assistant's message without words gets at least one call.
    """
    if role == "tool":
        return Said(role=role, result=text)
    if role != "assistant":
        return Said(role=role, text=text)
    nothing = text == NOTHING
    return Said(role=role, text="" if nothing else text, calls=[LOST] * (results or int(nothing)))


def _ending(role: str, text: str) -> tuple[Reason, Error | None]:
    """Return why the last turn ended, and its error, both inferred from the role and the text of the last message."""
    if role in ("", "assistant") or (role == "user" and STOP in text) or (role == "tool" and text == DONE):
        return "answered", None
    return "limit", Error(type="steps", message="The source ends here, before an answer, and does not say why.")


FORMATS = (
    Format(
        "tau-bench-few-shot",
        "JSON lines with `messages_display`",
        "object",
        ("messages_display",),
        read,
        members=MEMBERS,
    ),
)
