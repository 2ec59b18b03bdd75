"""Applies a tool message that steers the task (ends it, forwards a message, …) to the document that contains it.

A tool message is a tool call as data. A document is a message with its sender and recipient. The `_effect` of a
steering tool message says what to change in the document; see `orchestration`. A document is tainted if it has text
from outside.
"""

from collections.abc import Sequence

from gesta.compat.langroid.chat_document import ChatDocument, Entity, StatusCode
from gesta.compat.langroid.orchestration import (
    EMPTY,
    TO_WHOM,
    UNSENT,
    AddRecipientTool,
    Effect,
    RecipientTool,
    effect_of,
)
from gesta.compat.langroid.tool_message import ToolForm
from gesta.prompt import observation_text


def steer(doc: ChatDocument, trail: Sequence[ChatDocument]) -> None:
    """Change a document as its first steering tool message demands: content, tools, sender, recipient and status.

    Args:
        doc: an agent's response. A document from another sender, or without a steering message, is left unchanged.
        trail: the documents that the task had to answer so far, newest last.
    """
    found = [(each, effect) for each in doc.tool_messages if (effect := effect_of(each)) is not None]
    if doc.metadata.sender != Entity.AGENT or not found:
        return
    message, effect = found[0]
    to = str(getattr(message, effect.to)) if effect.to else doc.metadata.recipient
    match effect.gives:
        case "pending":
            _pass_on(doc, next((each for each in reversed(trail) if not _passes(each)), None))
            doc.metadata.block = Entity.LLM if not effect.to and not effect.ends else None
        case "rewind":
            doc.tool_messages = [message]  # `ChatAgent.rewind` changes the history
        case "unsent":
            text, tainted = _unsent(trail)
            if not text:
                _ask(doc, EMPTY)
                return
            doc.content, doc.tool_messages, doc.metadata.tainted = text, [], doc.metadata.tainted or tainted
        case "content" if isinstance(message, RecipientTool) and not to:
            _ask(doc, TO_WHOM)
            return
        case "content":
            value = getattr(message, "content", "")
            doc.content = observation_text(value) if value is not None else ""
            doc.content_any = None if isinstance(value, str) else value
            doc.tool_messages = list(getattr(message, "tools", ()))
        case _:
            doc.content, doc.tool_messages = "", [message]
    if effect.speaker == "LLM":
        doc.metadata.sender = Entity.LLM
    doc.metadata.recipient = to
    doc.metadata.status = StatusCode.DONE if effect.ends else None


def unsent(message: ToolForm) -> bool:
    """Return whether a tool message sends a text without a recipient, or names the recipient of an earlier text."""
    return isinstance(message, AddRecipientTool) or (
        isinstance(message, RecipientTool) and not message.intended_recipient
    )


def _pass_on(doc: ChatDocument, before: ChatDocument | None) -> None:
    """Replace the content and the tools of a response by those of `before`, the document that the response answers."""
    doc.content = before.content if before is not None else ""
    doc.tool_messages = list(before.tool_messages) if before is not None else []
    doc.metadata.tools_from_agent = before is not None and before.metadata.tools_from_agent
    doc.metadata.tainted |= before is not None and before.metadata.tainted


def _ask(doc: ChatDocument, text: str) -> None:
    doc.content, doc.tool_messages, doc.metadata.recipient = text, [], str(Entity.LLM)
    doc.metadata.source = UNSENT if text == TO_WHOM else ""


def _passes(doc: ChatDocument) -> bool:
    effects = [effect_of(each) for each in doc.tool_messages]
    return any(isinstance(each, Effect) and each.gives == "pending" for each in effects)


def _unsent(trail: Sequence[ChatDocument]) -> tuple[str, bool]:
    """Return the text of the model that still needs a recipient, and whether this text is tainted.

    The text is empty if no text needs a recipient.

    Args:
        trail: the documents that the task had to answer so far, newest last.
    """
    asked = max((n for n, each in enumerate(trail) if each.metadata.source == UNSENT), default=0)
    used = [each for each in trail[asked + 1 : -1] for tool in each.tool_messages if isinstance(tool, AddRecipientTool)]
    if not asked or used:
        return "", False
    said = trail[asked - 1]
    texts = [str(each.content) for each in said.tool_messages if isinstance(each, RecipientTool)]
    return (texts or [said.content])[0], said.metadata.tainted
