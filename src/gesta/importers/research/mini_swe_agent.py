"""Reads mini-swe-agent: trajectories `{info, messages, trajectory_format, instance_id}` of an agent with one tool.

A file holds one run, JSON lines of runs, or lines `{path, data}`. The agent works without a user, so a text
without a call is not an answer. A message of role `exit` ends the run: its text is the submission (the answer) or an
error. The last call has no result, and is the cause of the submission. Usage, model, price and the rest of a reply
are in `extra`, and go to the completion. A result failed if the environment raised an exception; the exit code of a
command does not matter. An action written as text becomes a call with an inferred name.

A run is a list of entries. A seq is an entry's number, a span a part of a run, a completion a reply of a model.

Source: SWE-agent/mini-swe-agent, `agents/default.py`, `models/utils` and `exceptions.py`, 2026-11.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gesta.importers.chat import Chat, Made, Said, arguments
from gesta.importers.foreign import (
    Foreign,
    Members,
    Oddities,
    digest_json,
    each_document,
    list_in,
    merged,
    object_of,
    plain_name,
    same,
    told,
    without_keys,
)
from gesta.importers.format import Format, members_of
from gesta.importers.message import CUT, KEPT, said
from gesta.importers.openai_exchange import as_chat, left_of_choices
from gesta.importers.source import Document, Source
from gesta.kinds import AssistantContent, Error, KeyValueContent, Kind, Reason

AGENT, TOOL = "mini-swe-agent", "bash"
"""Name of the runs, and name of the tool for an action that the agent wrote as text."""
EXIT = "exit"
ENDINGS: Mapping[str, Reason] = MappingProxyType(
    {"Submitted": "answered", "LimitsExceeded": "limit", "TimeExceeded": "limit", "UserInterruption": "cancelled"}
)
"""Why a turn ended, by the exit status. Any other status is the name of an exception class."""
BY_PERSON = "UserInterruption"
OBSERVED = ("returncode", "raw_output")
"""Members of `extra` that mark a message of the user as the output of a command."""
MADE = (Kind.ChatCompletion, Kind.ToolCall)
Object = dict[str, Any]
MEMBERS = KEPT | members_of(
    """path info trajectory_format instance_id extra actions action raw_output returncode exception exception_info
    exception_type traceback response cost timestamp model_response interrupt_type exit_status submission
    exception_str object created system_fingerprint"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each trajectory of a file, converted to entries of Gesta. Raises BadImport if the file is unreadable.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    return each_document(source, oddities, lambda document, words, odd: _run(document, source.path, words, odd))


def _run(document: Document, path: str, words: str, oddities: Oddities) -> Foreign:
    whole = document.value
    missing = f"expected a trajectory with its list of messages, found something else in {words}"
    messages = list_in(whole, "messages", path, missing)
    info = object_of(whole.get("info"))
    ending = _Ending(info, messages)
    model = plain_name(object_of(object_of(info.get("config")).get("model")).get("model_name")) or None
    chat = Chat(AGENT, oddities, model)
    chat.notes({"path": document.path or None})
    chat.notes({**whole, "info": ending.summary() if info else whole.get("info")}, ("messages",))
    if model is not None and (not messages or _role(messages[0]) != "system"):
        chat.header(None)
    steps = _Steps(chat, ending, oddities)
    for place, message in enumerate(messages):
        steps.take(message, place)
    own = plain_name(whole.get("instance_id")) or plain_name(document.path) or str(document.place)
    entries = chat.finish(*ending.reason(oddities), inferred=ending.status is None)
    return Foreign(id=own, name=AGENT, digest=digest_json(whole), entries=entries)


class _Ending:
    """How a run ended, according to its summary (`info`) and to its last message of role `exit`."""

    def __init__(self, info: Object, messages: list[Any]) -> None:
        self._info, self._empty = info, not messages
        last: Object = next((message for message in reversed(messages) if _role(message) == EXIT), {})
        extra, text = object_of(last.get("extra")), last.get("content")
        self.text = text if isinstance(text, str) else ""
        self.status = extra.get("exit_status") if info.get("exit_status") is None else info["exit_status"]
        self._answered = isinstance(self.status, str) and ENDINGS.get(self.status) == "answered"
        trace = extra.get("traceback")
        self.trace = trace if isinstance(trace, str) and not self._answered else None
        """Traceback of the exception that ended the run, for the error of the last turn."""

    def summary(self) -> Any:
        """Return the summary without members that the last message repeats. API keys are hidden."""
        known = {"submission": self.text, "exception_str": self.text, "traceback": self.trace}
        return without_keys({key: self._info[key] for key in self._info if not same(self._info[key], known.get(key))})

    def reason(self, oddities: Oddities) -> tuple[Reason, Error | None]:
        """Return why the last turn ended, and its error if any. An unknown status is counted in `oddities`."""
        if self._answered or (self.status is None and self._empty):
            return "answered", None
        if self.status is None:
            return "limit", Error(type="steps", message=CUT)
        reason = ENDINGS.get(self.status) if isinstance(self.status, str) else None
        trace = self._info.get("traceback") if self.trace is None else self.trace
        raised = isinstance(trace, str)
        oddities["unknown-ending"] += reason is None and not raised
        name = plain_name(self.status) or "unknown"
        text = self.text or f"The source says that it ended by {name}."
        return reason or "failed", Error(type=name, message=text, traceback=trace if raised else None)


class _Steps:
    """Turns the messages of a run into entries, in order."""

    def __init__(self, chat: Chat, ending: _Ending, oddities: Oddities) -> None:
        self._chat, self._ending, self._oddities = chat, ending, oddities
        self._names: dict[str, str] = {}
        self._made: tuple[int, ...] = ()
        """Seq of the last call, or of the last completion if it made no calls. Empty if there is no completion yet."""

    def take(self, message: Any, place: int) -> None:
        """Add one message. `place` is its number in the source."""
        message = as_chat(message)
        extra = object_of(message.get("extra")) if isinstance(message, dict) else {}
        bare = {key: message[key] for key in message if key != "extra"} if extra else message
        if _role(bare) == EXIT:
            self._exit(bare, extra, place)
            return
        words = said(bare, self._names, self._oddities)
        if words is None:
            self._chat.unreadable(message, place)
            return
        members = Members(extra, self._oddities)
        at = members.seconds("timestamp")
        if words.role == "assistant":
            words = self._completion(words, bare, members)
        elif words.role == "tool" or (words.role == "user" and not extra.keys().isdisjoint(OBSERVED)):
            words = _result(words, members, extra)
        elif words.role == "user" and self._made and extra.get("interrupt_type") != BY_PERSON:
            content = told(words.text, AGENT, merged(words.extra, members.rest()))
            self._chat.add(content, inferred=("kind",), place=place, when=at)
            return
        words = replace(words, at=at[0], sure=at[1], extra=merged(words.extra, members.rest()) or None)
        self._chat.take(words, place)
        if words.role == "assistant":
            made = self._chat.entries
            self._made = (next(at for at in range(len(made), 0, -1) if made[at - 1].content.kind in MADE),)

    def _exit(self, bare: Object, extra: Object, place: int) -> None:
        """Add the last message: as an answer if the message is the submission, else as a key-value entry.

        Args:
            bare: the message without its `extra`.
            extra: its `extra`.
            place: its number in the source.
        """
        outer, members = Members(bare, self._oddities), Members(extra, self._oddities)
        outer.take("role", str)
        text, status = outer.take("content", str) or "", extra.get("exit_status")
        for key, known in (("exit_status", self._ending.status), ("submission", text), ("exception_str", text)):
            members.drop(key, known)
        members.drop("submission", "")
        members.drop("traceback", self._ending.trace)
        at: tuple[datetime | None, bool] = members.seconds("timestamp")
        rest = merged(outer.rest(), members.rest())
        if (self._ending.status if status is None else status) == "Submitted":
            answer, inferred = AssistantContent(value=text, extra=rest or None), ("causes",) if self._made else ()
            self._chat.add(answer, self._made, inferred=inferred, place=place, when=at)
        else:
            self._chat.add(KeyValueContent(key=EXIT, value={"content": text, **rest}), place=place, when=at)

    def _completion(self, words: Said, bare: Object, members: Members) -> Said:
        """Return a message of the model, completed by the facts in the message's `extra`, such as usage and model.

        The reply in `extra` often repeats the message. Repeated members are left out.

        Args:
            words: the message as read so far.
            bare: the message in the source, without its `extra`.
            members: the members of its `extra` that were not read yet.
        """
        outer = Members(words.extra or {}, self._oddities)
        if words.reasoning is not None:
            outer.drop("provider_specific_fields", {"reasoning_content": words.reasoning})
        calls = words.calls
        members.drop("actions", [arguments(made.args)[0] | {"tool_call_id": made.id} for made in calls])
        if not calls:
            calls = [_action(action) for action in members.take("actions", list) or []]
        response = members.take("response", dict)
        reply = Members(response or {}, self._oddities)
        model, usage = reply.take("model", str), reply.take("usage", dict)
        finish, choices = left_of_choices(reply.take("choices", object), bare)
        raw = {**(reply.rest() or {}), **({} if choices is None else {"choices": choices})}
        known = (("cost_usd", members.take("cost", (int, float))), ("raw", raw or None))
        return replace(
            words,
            calls=calls,
            generated=response is not None,
            answers=False,
            reasoning=words.reasoning or None,
            model=model or None,
            finish_reason=finish,
            usage=usage,
            meta={key: value for key, value in known if value is not None} or None,
            extra=outer.rest(),
        )


def _result(words: Said, members: Members, extra: Object) -> Said:
    """Return the output of a command as a tool result.

    The result has failed if the environment raised an exception. The exit code does not matter.

    Args:
        words: the message with the output.
        members: the members of its `extra` that were not read yet.
        extra: its whole `extra`.
    """
    failed = extra.get("exception_info")
    members.drop("exception_info", "")
    return Said(
        role="tool",
        call_id=words.call_id,
        result=words.result if words.role == "tool" else words.text,
        error=bool(failed) if isinstance(failed, str) else None,
        extra=words.extra,
    )


def _action(action: Any) -> Made:
    """Return a call for an action that the agent wrote as text."""
    command = action.get("command") if isinstance(action, dict) else None
    if isinstance(command, str):
        rest = {key: action[key] for key in action if key != "command"}
        return Made(name=TOOL, args={"command": command}, id=None, extra=rest or None, inferred=("tool_name",))
    return Made(name=TOOL, args={}, id=None, extra={"action": action}, inferred=("tool_name", "tool_args"))


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


FORMATS = (
    Format(
        "mini-swe-agent",
        "trajectories of an agent with one tool, with `trajectory_format`",
        "object",
        ("messages", "trajectory_format"),
        read,
        members=MEMBERS,
    ),
)
