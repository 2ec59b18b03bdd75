"""Parses requests for chat completions into a conversation: instructions, history, new message, and tool results.

Source: OpenAI's chat completions, https://platform.openai.com/docs/api-reference/chat/create. Members that set how a
model samples are accepted and ignored, because the agent has its own settings.
"""

import base64
import binascii
import re
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from gesta.kinds import Part
from gesta.serve.bodies import Refused

Content = str | list[dict[str, Any]] | None
"""The member `content` of a message: a text, a list of parts, or null."""
DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


class Function(Struct, frozen=True):
    """The member `function` in OpenAI's API: it describes a function of the client, or a model's call of it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    arguments: str = "{}"


class ClientTool(Struct, frozen=True):
    """A tool that the client runs itself."""

    function: Function
    type: str = "function"


class ChatMessage(Struct, frozen=True):
    """One message of the conversation that the client sends."""

    role: str
    content: Content = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(Struct, frozen=True):
    """Options of a stream: whether token counts are sent at its end."""

    include_usage: bool = False


class ChatRequest(Struct, frozen=True):
    """The body of a request for a chat completion."""

    model: str
    messages: list[ChatMessage]
    stream: bool = False
    stream_options: StreamOptions | None = None
    tools: list[ClientTool] | None = None
    user: str | None = None
    n: int | None = None
    session: str | UnsetType = UNSET
    """Name of the session to continue with the last message; its history is read from the record. This member is not
    OpenAI's; OpenAI's clients can send it by `extra_body`."""


class Asked(Struct, frozen=True, kw_only=True):
    """The conversation in a request: instructions, earlier messages, and a new message or results of tools."""

    system: str
    """Instructions that the client adds to the agent's own."""
    history: tuple[tuple[str, str], ...]
    """Role and text of each earlier message, without tool calls and their results."""
    words: list[str | Part]
    """The new message: texts and images."""
    results: dict[str, str]
    """Results of the client's tools, by the id of the call. If there are results, there is no new message."""

    @property
    def text(self) -> str:
        """The text of the new message."""
        return "\n\n".join(word for word in self.words if isinstance(word, str))


def conversation(request: ChatRequest) -> Asked:
    """Return the conversation in a request.

    Raises:
        Refused: the messages are not in a form that an agent can answer; the error says what is wrong.
    """
    if request.n not in (None, 1):
        raise Refused(400, "BadRequest", f"n is {request.n}, and an agent answers once: leave it out.")
    system = [_text(each) for each in request.messages if each.role in ("system", "developer")]
    said = [each for each in request.messages if each.role not in ("system", "developer")]
    for each in said:
        if each.role not in ("user", "assistant", "tool"):
            raise Refused(400, "BadRequest", f"A message has role {each.role!r:.40}, expected user, assistant or tool.")
    last = len(said)
    while last and said[last - 1].role in ("tool", "user"):
        last -= 1
    new = said[last:]
    results = {each.tool_call_id or "": _text(each) for each in new if each.role == "tool"}
    words = [part for each in new if each.role == "user" for part in _parts(each)]
    if results and words:
        raise Refused(
            400, "BadRequest", "The last messages are results of tools and a new message; send one or the other."
        )
    if not results and not words:
        raise Refused(
            400, "BadRequest", "The last message is neither a user message nor a result of a tool: nothing is asked."
        )
    told = [(each.role, _text(each)) for each in said[:last] if each.role != "tool" and not each.tool_calls]
    return Asked(system="\n\n".join(filter(None, system)), history=_joined(told), words=words, results=results)


def _joined(told: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return role and text of each message. Successive messages of one role are joined into one, as in the record."""
    joined: list[tuple[str, str]] = []
    for role, text in told:
        if joined and joined[-1][0] == role:
            joined[-1] = role, f"{joined[-1][1]}\n\n{text}"
        else:
            joined.append((role, text))
    return tuple(joined)


def _text(message: ChatMessage) -> str:
    return "\n\n".join(part for part in _parts(message) if isinstance(part, str))


def _parts(message: ChatMessage) -> list[str | Part]:
    if message.content is None:
        return []
    if isinstance(message.content, str):
        return [message.content]
    return [_part(each) for each in message.content]


def _part(given: dict[str, Any]) -> str | Part:
    """Return a part of a message as a text or an image. Raises Refused for any other part."""
    kind, text = given.get("type"), given.get("text", given.get("refusal"))
    if kind in ("text", "refusal", "input_text") and isinstance(text, str):
        return text
    if kind == "image_url" and isinstance(image := given.get("image_url"), dict):
        url = str(image.get("url"))
        found = DATA_URL.fullmatch(url)
        if found is None and url.startswith(("https://", "http://")):
            return Part(type="image", url=url)  # the model's provider may fetch it
        if found is None:
            wrong_url = "The address of an image is neither an http address nor a data: URL in base64."
            raise Refused(400, "BadRequest", wrong_url)
        try:
            return Part(type="image", media_type=found[1], data=base64.b64decode(found[2], validate=True))
        except binascii.Error as wrong:
            raise Refused(400, "BadRequest", f"An image is not base64: {wrong}.") from wrong
    raise Refused(400, "BadRequest", f"A part of a message is of type {kind!r:.40}, expected text or image_url.")
