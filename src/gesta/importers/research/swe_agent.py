"""Reads SWE-agent: runs of one agent in a repository, `{history, trajectory, info, replay_config, environment}`.

A file holds one run, or JSON lines of runs. `history` is the conversation. The n-th step of `trajectory` belongs to the
agent's n-th message: its observation goes to the result, its other members to the completion as `step`. A step after
the last message becomes a completion too. An action written as text (back-ticks, XML) becomes a call with an inferred
name, and the user's next message is its result. The agent works without a user, so its text without an action is no
answer. Texts of demonstrations count as texts of the program. The submission is the answer. There are no times.

A run is a list of entries. A seq is an entry's number, a span a part of a run, a completion a reply of a model.

Source: SWE-agent/SWE-agent, `sweagent/agent/agents.py` and `sweagent/types.py`, 2026-11.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gesta.importers.chat import Chat, Made, Said
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
    told,
    without_keys,
)
from gesta.importers.format import Format, members_of
from gesta.importers.message import CUT, KEPT, said
from gesta.importers.source import Document, Source
from gesta.importers.unpacked import loads
from gesta.kinds import AssistantContent, Error, KeyValueContent, Kind, Reason

AGENT, TOOL = "swe-agent", "bash"
"""Name of the runs, and name of the tool for an action that the agent wrote as text."""
DEMO = "demonstration"
SUBMITTED = "submitted"
"""The exit status of a run that submitted. If a reason follows in brackets, the program stopped the agent for that
reason, and submitted in its place."""
SUBMIT = "submit"
ENDINGS: Mapping[str, Reason] = MappingProxyType(
    {
        SUBMITTED: "answered",
        "exit_cost": "budget",
        "exit_context": "limit",
        "exit_total_execution_time": "limit",
        "exit_api": "failed",
        "exit_command": "failed",
        "exit_command_timeout": "failed",
        "exit_environment_error": "failed",
        "exit_error": "failed",
        "exit_forfeit": "failed",
        "exit_format": "failed",
    }
)
"""Why a turn ended, by the exit status."""
OWN = ("agent", "message_type", "is_demo", "thought", "action", "tool_call_ids")
"""Members that SWE-agent adds to messages of OpenAI's chat."""
LIST, STEPS, SETTINGS = "history", "trajectory", "replay_config"
MADE = (Kind.ChatCompletion, Kind.ToolCall, Kind.ToolResult)
Object = dict[str, Any]
MEMBERS = KEPT | members_of(
    """path environment info history trajectory replay_config step observation message_type action thought
    thinking_blocks is_demo tool_call_ids agent state query response execution_time extra_info"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each run of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    return each_document(source, oddities, lambda document, words, odd: _run(document, source.path, words, odd))


def _run(document: Document, path: str, words: str, oddities: Oddities) -> Foreign:
    whole = document.value
    history = list_in(whole, LIST, path, f"expected a run with a list {LIST!r}, found something else in {words}")
    settings, info, steps = _settings(whole.get(SETTINGS)), object_of(whole.get("info")), whole.get(STEPS)
    reason, error, sure = _ending(info.get("exit_status"), history, oddities)
    submission = info.get("submission")
    answer = submission if reason == "answered" and isinstance(submission, str) else None
    notes = {key: whole[key] for key in whole if key != LIST and (key != STEPS or not isinstance(steps, list))}
    notes |= {SETTINGS: settings} | ({} if answer is None else {"info": _without(info, "submission")})
    chat = Chat(AGENT, oddities, plain_name(_inside(settings, "agent", "model", "name")) or None)
    chat.notes({"path": document.path or None} | notes)
    run = _History(chat, history, steps if isinstance(steps, list) else [], oddities)
    for place, message in enumerate(history):
        run.take(message, place)
    run.finish(answer)
    own = plain_name(_inside(settings, "problem_statement", "id")) or plain_name(document.path) or str(document.place)
    entries = chat.finish(reason, error, inferred=not sure)
    return Foreign(id=own, name=AGENT, digest=digest_json(whole), entries=entries)


class _History:
    """Turns the messages of a run into entries, each message of the agent together with its step."""

    def __init__(self, chat: Chat, history: list[Any], steps: list[Any], oddities: Oddities) -> None:
        self._chat, self._steps, self._oddities = chat, iter(steps), oddities
        self._names: dict[str, str] = {}
        self._places: dict[str, int] = {}
        """Number of each message so far, by the message's digest."""
        self._made = 0
        """Seq of the newest completion, call or result; 0 if there is none."""
        self._calls: list[Made] = []
        """Calls of the last completion that have no result yet."""
        self._observed: str | None = None
        """Result of the calls in `_calls`, from the agent's step; `None` if the step has no result."""
        agents = (message["agent"] for message in history if isinstance(message, dict) and "agent" in message)
        self._agent = next(agents, None)
        if self._agent is not None:
            chat.note(LIST, {"agent": self._agent})

    def take(self, message: Any, place: int) -> None:
        """Add the entries of one message of the conversation, whose index in `history` is `place`."""
        words = said(_bare(message), self._names, self._oddities)
        if words is None:
            self._settle()
            self._chat.unreadable(message, place)
            return
        own = Members({key: message[key] for key in OWN if key in message}, self._oddities)
        own.drop("agent", self._agent)
        if message.get("is_demo") is True or message.get("message_type") == DEMO:
            rest = _without(message, "content", "agent") | (words.extra or {}) | (own.rest() or {})
            self._chat.add(told(words.text, DEMO, rest), place=place)
        elif words.role == "assistant":
            own.drop("message_type", "action")
            self._completion(words, own, next(self._steps, None), place)
        elif words.role == "tool" or (words.role == "user" and any(made.inferred for made in self._calls)):
            self._result(words, own, place)
        elif words.role == "user" and self._made:
            self._settle()
            content = told(words.text, AGENT, merged(words.extra, own.rest()))
            self._chat.add(content, inferred=("kind",), place=place)
        else:
            if words.role == "system":
                own.drop("message_type", "system_prompt")
            self._chat.take(replace(words, extra=merged(words.extra, own.rest()) or None), place)
        self._places.setdefault(digest_json(message), place)

    def finish(self, answer: str | None) -> None:
        """Add the steps after the last message, and then the submission.

        Args:
            answer: text of the submission, if there is one.
        """
        self._settle()
        for step in self._steps:
            given = object_of(step)
            text, action = given.get("response"), given.get("action")
            if (isinstance(text, str) and text) or (isinstance(action, str) and action):
                words = Said(role="assistant", text=text if isinstance(text, str) else "")
                own = Members({key: given[key] for key in ("thought", "action") if key in given}, self._oddities)
                self._completion(words, own, step, None)
                self._settle()
            else:
                self._chat.add(KeyValueContent(key="step", value=step))
        if answer is not None:
            causes = (self._made,) if self._made else ()
            self._chat.add(AssistantContent(value=answer), causes, inferred=("causes",) if causes else ())

    def _completion(self, words: Said, own: Members, step: Any, place: int | None) -> None:
        self._settle()
        thought, action, calls = own.take("thought", str), own.take("action", str), words.calls
        beside = Members(object_of(step), self._oddities)
        for key, known in (("response", words.text), ("thought", thought), ("action", action)):
            beside.drop(key, known)
        if action and not calls:
            calls = [Made(name=TOOL, args={"command": action}, id=None, inferred=("tool_name",))]
            action = None
        self._observed = beside.take("observation", str) if calls else None
        query = self._query(beside.take("query", list))
        rest = step if not isinstance(step, dict) else (beside.rest() or {}) | query
        extra = merged(words.extra, own.rest()) | {
            key: kept for key, kept in (("action", action), ("step", rest)) if kept
        }
        if words.reasoning and thought != words.text:
            extra |= {"thought": thought} if thought else {}
        elif thought != words.text:
            words = replace(words, reasoning=thought or None)
        made = replace(words, calls=calls, generated=True, answers=False, extra=extra or None)
        self._chat.take(made, place)
        self._calls, self._made = calls, _last(self._chat)

    def _query(self, query: list[Any] | None) -> Object:
        """Return a dict with the messages that the model was sent, under `query`; an empty dict if they are unknown.

        A message that the history contains is replaced by its number.
        """
        return {} if query is None else {"query": [self._places.get(digest_json(one), one) for one in query]}

    def _result(self, words: Said, own: Members, place: int) -> None:
        result = words.result if words.role == "tool" else words.text
        own.drop("message_type", "observation")
        own.drop("tool_call_ids", [words.call_id])
        observed, self._observed, self._calls = self._observed, None, []
        more = own.rest() or {}
        if observed is not None and observed != result:
            more |= {"observation": observed}
        extra = merged(words.extra, more) or None
        self._chat.take(Said(role="tool", call_id=words.call_id, result=result, extra=extra), place)
        self._made = _last(self._chat)

    def _settle(self) -> None:
        """Write the observation of the latest step as a result, unless a message of `history` contained that result.

        Every method that adds an entry calls this method first.
        """
        observed, calls, self._observed, self._calls = self._observed, self._calls, None, []
        if observed is not None:
            self._chat.take(Said(role="tool", call_id=calls[0].id, result=observed), None)
            self._made = _last(self._chat)


def _last(chat: Chat) -> int:
    # The chat may end with another kind of entry, such as a thought.
    return next(at for at in range(len(chat.entries), 0, -1) if chat.entries[at - 1].content.kind in MADE)


def _ending(status: Any, history: list[Any], oddities: Oddities) -> tuple[Reason, Error | None, bool]:
    """Return why the turn ended, its error, and whether the source states the reason.

    Args:
        status: the `exit_status` of the run. If it is `None`, the last message decides.
        history: the messages of the run.
    """
    if status is None:
        actions = (message.get("action") for message in reversed(history) if isinstance(message, dict))
        last = next((action for action in actions if isinstance(action, str)), "")
        if not history or last.split()[:1] == [SUBMIT]:
            return "answered", None, False
        return "limit", Error(type="steps", message=CUT), False
    name = plain_name(status) or "unknown"
    why = name.removeprefix(f"{SUBMITTED} (").removesuffix(")") if name.startswith(f"{SUBMITTED} (") else name
    reason = ENDINGS.get(why) if isinstance(status, str) else None
    if reason == "answered":
        return reason, None, True
    oddities["unknown-ending"] += reason is None
    return reason or "failed", Error(type=name, message=f"The source says that it ended by {name}."), reason is not None


def _bare(message: Any) -> Any:
    """Return a message in the form of OpenAI's chat, without the members that SWE-agent adds.

    A result then names its call in `tool_call_id`.
    """
    if not isinstance(message, dict):
        return message
    ids = message.get("tool_call_ids")
    one = {"tool_call_id": ids[0]} if isinstance(ids, list) and ids and "tool_call_id" not in message else {}
    return _without(message, *OWN) | (one if message.get("role") == "tool" else {})


def _settings(given: Any) -> Any:
    """Return the settings of a run, in which API keys are hidden.

    The source may have the settings as JSON text.
    """
    try:
        read = loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given
    return without_keys(read) if isinstance(read, dict) else given


def _inside(value: Any, *keys: str) -> Any:
    for key in keys:
        value = object_of(value).get(key)
    return value


def _without(members: Object, *keys: str) -> Object:
    return {key: members[key] for key in members if key not in keys}


FORMATS = (
    Format(
        "swe-agent",
        "runs with a `history`",
        "object",
        ("history",),
        read,
        vague=True,
        members=MEMBERS,
        within=("function", "step"),
    ),
)
