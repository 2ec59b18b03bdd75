"""A model that repeats the recorded answers of a run: no key, no network, no cost.

A run is the list of entries (events) of one conversation of an agent. If the bytes of a reply were recorded, the model
sends them again. Otherwise the reply is made from its entries: a completion (the text that the model generated), and
its calls and thoughts. Requests have the same bodies as before, so a replayed run gets the same entries.
"""

import hashlib
import zlib
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gesta.entry import Entry
from gesta.errors import AgentError, ModelFault, ScriptExhausted
from gesta.kinds import (
    ChatCompletionContent,
    RequestContent,
    RequestHeaderContent,
    ThoughtContent,
    ToolCallContent,
)
from gesta.model.request import Reply, ReplyCall, Request
from gesta.models.chat_completions import ChatParser
from gesta.models.gathered import Gathered
from gesta.models.jsontext import exact
from gesta.models.providers import PROVIDERS
from gesta.models.scripted import Answer, Keyless, Script, spoken


class Recorded(Struct):
    """One recorded answer of a model."""

    id: str
    reply: Reply
    digest: str | None
    """SHA-256 of the request's body, in hex; `None` if the request is not on record."""
    raw: bytes | None
    """The bytes that the provider sent, compressed with zlib; `None` if they were not kept."""

    def answer(self) -> Reply | bytes:
        """Return the recorded bytes if they are a Chat Completions reply with the recorded text, else `reply`."""
        if self.raw is None:
            return self.reply
        parser = ChatParser()
        try:
            data = zlib.decompress(self.raw)
            parser.feed(data)
            same = parser.close().text == self.reply.text
        except (zlib.error, ModelFault):
            return self.reply
        return data if same else self.reply


def replay(source: Iterable[Any], *, strict: bool = False, name: str | None = None, stream: bool = True) -> Keyless:
    """Return a model that repeats recorded answers, one after the other.

    Args:
        source: the entries of one run; or items as `gesta.scripted` accepts them, such as `said` returns.
        strict: whether each request must have the same body as the recorded one. If it differs, AgentError is raised.
        name: name of the model; by default the recorded name, or `replay` if no name was recorded.
        stream: whether requests ask for a stream. For `strict`, it must be as it was when the run was recorded.

    Raises:
        AgentError: the entries belong to several runs, or `strict` is set and a recorded request is missing.
    """
    found = list(source)
    if not any(isinstance(one, Entry) for one in found):
        name = name or "replay"
        if strict and found:
            raise AgentError(
                f"Model {name!r}: strict compares requests with those on record, and these items have none. "
                "Replay the entries of a run, or use strict=False."
            )
        return Keyless(name, Script(name, found).choose, spoken(name, stream=stream))
    answers = recorded(found)
    named = name or _name(found) or "replay"
    unknown = [one.id for one in answers if one.digest is None]
    if strict and unknown:
        raise AgentError(
            f"Model {named!r}: the request that {unknown[0]} answered is not on record, so strict cannot compare. "
            "Use strict=False."
        )

    def choose(request: Request) -> Answer:
        place = request.answered
        if place >= len(answers):
            raise ScriptExhausted(named, place + 1, len(answers))
        if strict:
            _compare(answers[place], request, place + 1)
        return answers[place].answer()

    provider = PROVIDERS.get(named.partition(":")[0])
    dialect = spoken(named, stream=stream, settings=provider.settings if provider is not None else None)
    return Keyless(named, choose, dialect, keep=any(one.raw is not None for one in answers))


def recorded(entries: Iterable[Entry]) -> list[Recorded]:
    """Return the recorded answers of a run in order, each with its calls and thoughts.

    A thought that is also in the text of the answer is left out.

    Raises:
        AgentError: the entries belong to several runs, or an object is not an entry.
    """
    found = sorted(_checked(entries), key=lambda entry: entry.seq)
    headers: dict[int, RequestHeaderContent] = {}
    requests: dict[int, RequestContent] = {}
    answers: dict[int, Recorded] = {}
    textual: set[int] = set()
    for entry in found:
        match entry.content:
            case RequestHeaderContent() as header:
                headers[entry.seq] = header
            case RequestContent() as request:
                requests[entry.seq] = request
            case ChatCompletionContent() as completion:
                asked = next((requests[cause] for cause in _seqs(entry) if cause in requests), None)
                raw = (completion.meta or {}).get("raw_zlib")
                answers[entry.seq] = Recorded(
                    entry.id,
                    _reply(completion),
                    asked.body_digest if asked is not None else None,
                    raw if isinstance(raw, bytes) else None,
                )
                if asked is not None and asked.header in headers and not headers[asked.header].tools:
                    textual.add(entry.seq)  # no tools were in the request, so the calls were read from the text
            case ThoughtContent() | ToolCallContent() as more:
                owner = _owner(entry, answers)
                if owner is not None and not (owner in textual and isinstance(more, ToolCallContent)):
                    _add(answers[owner], more)
    return list(answers.values())


def from_messages(messages: Iterable[dict[str, Any]], *, name: str = "replay", stream: bool = True) -> Keyless:
    """Return a model that repeats the assistant's messages of a recorded conversation.

    Args:
        messages: the conversation in the form of OpenAI's Chat Completions. Messages of other roles are ignored. Ids of
            calls and the text of their arguments are kept, even if that text is not JSON.
        name: name of the model, for the record and for errors.
        stream: whether requests ask for a stream.
    """
    return Keyless(name, Script(name, said(messages)).choose, spoken(name, stream=stream))


def said(messages: Iterable[dict[str, Any]]) -> list[Reply]:
    """Return the assistant's messages of a conversation as replies, for `replay` or `gesta.scripted`.

    Args:
        messages: the conversation in the form of OpenAI's Chat Completions.
    """
    items: list[Reply] = []
    for message in messages:
        if message.get("role") == "assistant":
            gathered = Gathered()
            gathered.message(message)
            items.append(gathered.reply(keep=False))
    return items


def _checked(entries: Iterable[Entry]) -> list[Entry]:
    found = list(entries)
    for entry in found:
        if not isinstance(entry, Entry):
            raise AgentError(f"Expected entries only, found {type(entry).__name__}: {str(entry)[:80]!r}.")
    runs = sorted({entry.run for entry in found})
    if len(runs) > 1:
        raise AgentError(
            f"Expected the entries of one run, found {len(runs)}: {', '.join(runs[:3])}. Replay each alone."
        )
    return found


def _name(entries: list[Entry]) -> str | None:
    """Return the name of the model that answered in a run; `None` if no entry names it."""
    for entry in entries:
        if isinstance(entry.content, RequestHeaderContent):
            name = (entry.content.meta or {}).get("model")
            if isinstance(name, str) and name:
                return name
    return None


def _seqs(entry: Entry) -> list[int]:
    return [cause for cause in entry.causes if isinstance(cause, int)]


def _owner(entry: Entry, answers: dict[int, Recorded]) -> int | None:
    """Return the seq (number) of the completion (answer of a model) that an entry belongs to; `None` if there is none.

    If the entry names no cause (an entry that it was made from), this is the last completion before it.
    """
    named = [cause for cause in _seqs(entry) if cause in answers]
    if named:
        return named[0]
    return next(reversed(answers), None) if not entry.causes else None


def _reply(completion: ChatCompletionContent) -> Reply:
    return Reply(
        text=completion.output,
        model=completion.model or "",
        finish_reason=completion.finish_reason or "",
        usage=completion.usage,
        keep=False,
    )


def _add(answer: Recorded, more: ThoughtContent | ToolCallContent) -> None:
    reply = answer.reply
    if isinstance(more, ToolCallContent):
        raw = (more.meta or {}).get("raw_args")
        args = raw if isinstance(raw, str) else exact(more.tool_args).decode()
        call = ReplyCall(more.tool_name, args, more.tool_call_id)
        answer.reply = replace(reply, calls=(*reply.calls, call))
    elif more.value not in reply.text:  # otherwise the agent read the thought from the text, and will do so again
        thought = more.value if reply.thought is None else f"{reply.thought}\n{more.value}"
        answer.reply = replace(reply, thought=thought)


def _compare(answer: Recorded, request: Request, number: int) -> None:
    digest = request.digest or hashlib.sha256(request.body()).hexdigest()
    if digest != answer.digest:
        raise AgentError(
            f"Strict replay: answer {number} ({answer.id}) was given to a request with SHA-256 {answer.digest}, and "
            f"this request has {digest}. Prompt, tools, settings or model differ; `gesta diff` says where, and "
            "strict=False replays all the same."
        )
