"""Reads the messages of a sample (one task, run once) from a log of Inspect AI.

Every request to a model repeats all earlier messages. To keep a run small, each message is written once. A repeated
message is replaced by `{"message": number}` if it belongs to the conversation, or by `{"entry": seq}` if an event held
it first. A reference `attachment://hash` (older `tc://hash`) is replaced by its text, and kept in `extra.attachments`
by path. Facts about a message from its event go to the completion or the result. The event's tools and settings go to
the request header. All other members go to `extra.event`.

A run is a list of entries, which are recorded facts. A seq is the number of an entry in its run. A span is a part of a
run from its begin entry to its end entry. A completion is a reply that a model generated.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from gesta.importers.chat import Made, Said
from gesta.importers.foreign import Members, Oddities, digest_json, merged, plain_name, same
from gesta.importers.message import Form, made

ROLES = ("system", "user", "assistant", "tool")
SCHEMES = ("attachment://", "tc://")
REFS = "attachments"
FORM = Form(name=("function",))
DEPTH = 32
"""Greatest depth of nested values that are searched. Deeper values stay unchanged."""
OUTCOMES: Mapping[str, Literal["denied", "interrupted"]] = MappingProxyType(
    {"approval": "denied", "cancelled": "interrupted"}
)
"""Outcome of a result, by the type of its error. Only errors that are not failure of the tool are listed."""
TOOL: Mapping[str, str] = MappingProxyType({"parameters": "args_schema"})
"""Members of a tool's definition that have another name in Gesta."""

When = tuple[datetime | None, bool]
"""A time (`None` if it is unknown), and whether its time zone is known."""


class Heard(Struct, frozen=True, kw_only=True):
    """A message of a sample, with facts for which `chat.Said` has no field."""

    said: Said
    latency_ms: float | None = None
    errors: tuple[str | None, ...] = ()
    """For each call: why Inspect could not read the call, or `None`."""
    outcome: Literal["denied", "interrupted"] | None = None


class Told:
    """The messages of a sample that were written so far, and the sample's attachments.

    A message that was written already is replaced by a reference, so that no message is written twice.
    """

    def __init__(self, texts: Mapping[str, Any]) -> None:
        self._texts = {key: text for key, text in texts.items() if isinstance(text, str)}
        self._known: dict[str, dict[str, int]] = {}
        self._fresh: list[str] = []

    def read(self, value: Any) -> tuple[Any, dict[str, Any]]:
        """Replace the references to attachments in a value by their texts.

        A message in the value that was written already is replaced by a reference to it.

        Returns:
            The changed value, and the references that were replaced, for `extra`.
        """
        refs: dict[str, str] = {}
        made = self._read(value, "$", refs, 0)
        return made, {REFS: refs} if refs else {}

    def look(self, value: Any) -> Any:
        """Return the changed value that `read` returns, to compare messages. `written` ignores what is read here."""
        before = list(self._fresh)
        made, _ = self.read(value)
        self._fresh = before
        return made

    def stand(self, messages: list[Any]) -> None:
        """Store the messages of the conversation with their numbers.

        From then on, `read` replaces each copy of a stored message by the message's number.
        """
        self._fresh = []
        for place, message in enumerate(messages):
            if is_message(message):
                self._known.setdefault(digest_json(message), {"message": place})

    def written(self, seq: int) -> None:
        """Store that the entry `seq` contains the messages that `read` found since the last call of this method."""
        for digest in self._fresh:
            self._known.setdefault(digest, {"entry": seq})
        self._fresh = []

    def _read(self, value: Any, path: str, refs: dict[str, str], depth: int) -> Any:
        if isinstance(value, str):
            text = next((self._texts.get(value.removeprefix(one)) for one in SCHEMES if value.startswith(one)), None)
            if text is not None:
                refs[path] = value
            return value if text is None else text
        if depth >= DEPTH or not isinstance(value, list | dict):
            return value
        if isinstance(value, list):
            return [self._read(each, f"{path}[{place}]", refs, depth + 1) for place, each in enumerate(value)]
        inside: dict[str, str] = {}
        made = {key: self._read(each, f"{path}.{key}", inside, depth + 1) for key, each in value.items()}
        if is_message(made):
            digest = digest_json(made)
            if digest in self._known:
                return dict(self._known[digest])
            self._fresh.append(digest)
        refs |= inside
        return made


def is_message(value: Any) -> bool:
    """Return whether a value is a chat message: an object with a known role and a content."""
    return isinstance(value, dict) and value.get("role") in ROLES and "content" in value


def dig(value: Any, *path: str | int) -> Any:
    """Return the value at a path such as `"choices", 0, "message"` inside a JSON value; `None` if there is no value."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


class Hearing(Struct, frozen=True):
    """Reads the messages of one sample into the form that `Chat` takes."""

    told: Told
    oddities: Oddities
    calls: dict[str, dict[str, Any]]
    """The calls of all messages by their id, in the form of the source."""

    def hear(self, message: Any, place: int, event: Any, refs: dict[str, Any]) -> Heard | None:
        """Read one message; return `None` if the value is not a message.

        Args:
            place: number of the message in the conversation.
            event: the event that made the message; `None` if no event made it.
            refs: the references that were replaced in the message. They are kept in `extra`.
        """
        if not is_message(message):
            return None
        members, role = Members(message, self.oddities), message["role"]
        members.take("role", str)
        if role == "tool":
            return self._result(message, members, event, refs)
        text, reasoning = self._words(members, message["content"])
        if role != "assistant":
            return Heard(said=Said(role=role, text=text, extra=kept(members.rest(), refs)))
        calls = [self._made(call) for call in members.take("tool_calls", list) or []]
        made = Said(role=role) if event is None else self._generation(event, place, text)
        shown = event is not None or message.get("source") == "generate"
        members.drop("source", "generate")
        members.drop("model", made.model)
        model = made.model or members.take("model", str)
        reasoning = reasoning or members.take("reasoning", str)
        said = Said(
            role=role,
            text=text,
            calls=[call for call, _ in calls],
            generated=shown or model is not None or reasoning is not None,
            reasoning=reasoning,
            model=model,
            finish_reason=made.finish_reason,
            usage=made.usage,
            meta=made.meta,
            at=made.at,
            sure=made.sure,
            extra=kept(members.rest(), refs, made.extra),
        )
        return Heard(said=said, latency_ms=latency(event), errors=tuple(error for _, error in calls))

    def _words(self, members: Members, content: Any) -> tuple[str, str | None]:
        """Return the text and the reasoning in the content of a message.

        If the content has other parts too, it stays in `members`, the members of the message that are not read yet.
        """
        text, reasoning, whole = words(content)
        if whole:
            members.take("content", object)
        self.oddities["wrong-type"] += not (whole or isinstance(content, list))
        return text, reasoning

    def _made(self, call: Any) -> tuple[Made, str | None]:
        one = made(call, self.oddities, FORM)
        rest = dict(one.extra or {})
        error = rest.pop("parse_error", None)
        return (replace(one, extra=rest or None), error) if isinstance(error, str) else (one, None)

    def _result(self, message: dict[str, Any], members: Members, event: Any, refs: dict[str, Any]) -> Heard:
        content, error = message["content"], message.get("error")
        text, _, whole = words(content)
        result = text if isinstance(content, list) else content
        if whole or not isinstance(content, list):
            members.take("content", object)
        call_id = members.take("tool_call_id", str) or None
        call = self.calls.get(call_id or "", {})
        members.drop("function", call.get("function"))
        why = dig(error, "message")
        shown = isinstance(why, str) and result in ("", None)
        when, rest = ((None, False), None) if event is None else self._tool(event, message, call)
        said = Said(
            role="tool",
            call_id=call_id,
            result=why if shown else result,
            error=error is not None,
            inferred=("tool_result",) if shown else (),
            at=when[0],
            sure=when[1],
            extra=kept(members.rest(), refs, {"event": rest} if rest else None),
        )
        kind = dig(error, "type")
        return Heard(said=said, outcome=OUTCOMES.get(kind) if isinstance(kind, str) else None)

    def _tool(self, event: Any, message: dict[str, Any], call: dict[str, Any]) -> tuple[When, dict[str, Any] | None]:
        """Return the time when a tool had finished, and the other members of the tool's event.

        Members that `message` or `call` already contain are left out.
        """
        apart = {"events"} if isinstance(event.get("events"), list) else set()
        made, refs = self.told.read({key: value for key, value in event.items() if key not in apart})
        members = Members(made, self.oddities)
        known = {"event": "tool", "type": "function", "id": message.get("tool_call_id")}
        known |= {key: call.get(key) for key in ("function", "arguments", "view")}
        known |= {"result": message["content"], "error": message.get("error"), "message_id": message.get("id")}
        for key, value in known.items():
            members.drop(key, value)
        when = done(members)
        return when, kept(members.rest(), refs)

    def _generation(self, event: Any, place: int, text: str) -> Said:
        """Return the facts that a model event adds to the generated message: name of the model, usage, time and others.

        The result has no text, because the message itself has the text.

        Args:
            place: number of the generated message.
            text: text of the generated message. If the event repeats this text, the copy is left out.
        """
        apart = ("call", "tools", "config")  # the last two are in the header
        made, refs = self.told.read({key: value for key, value in event.items() if key not in apart})
        members = Members(made, self.oddities)
        members.drop("event", "model")
        members.drop("input", [{"message": before} for before in range(place)])
        output = Members(members.take("output", dict) or {}, self.oddities)
        usage, model = output.take("usage", dict), output.take("model", str)
        finish = dig(made, "output", "choices", 0, "stop_reason")
        finish = finish if isinstance(finish, str) else None
        output.drop("completion", text)
        seconds = dig(made, "output", "time")
        if latency(event) is not None:
            output.take("time", object)
            members.drop("working_time", seconds)
        output.drop("choices", [{"message": {"message": place}, "stop_reason": finish}])
        raw, rest = _call(event.get("call"), seconds)
        when = done(members)
        parts = {"output": output.rest(), "call": rest}
        more = kept(members.rest(), {key: value for key, value in parts.items() if value}, refs)
        return Said(
            role="assistant",
            model=model,
            finish_reason=finish,
            usage=usage,
            meta=None if raw is None else {"raw": raw},
            at=when[0],
            sure=when[1],
            extra={"event": more} if more else None,
        )


def kept(*parts: dict[str, Any] | None) -> dict[str, Any] | None:
    """Merge dicts for the member `extra` of an entry; return `None` if the result is empty.

    If several dicts have a table of replaced references, the tables are merged too.
    """
    made: dict[str, Any] = {}
    for part in parts:
        more, refs = dict(part or {}), made.get(REFS)
        if isinstance(refs, dict) and isinstance(more.get(REFS), dict):
            made[REFS] = refs | more.pop(REFS)
        made = merged(made, more)
    return made or None


def _call(call: Any, seconds: Any) -> tuple[Any, Any]:
    """Return the response in a recorded call of a provider's API, and the other members of the call.

    Args:
        call: the recorded call; if it is not a dict, the response is `None`.
        seconds: the time that the model needed, according to the event. An equal time in the call is left out.
    """
    if not isinstance(call, dict):
        return None, call
    known = ("response", "time") if same(call.get("time"), seconds) else ("response",)
    return call.get("response"), {key: value for key, value in call.items() if key not in known and value is not None}


def offer(event: Any, told: Told) -> tuple[list[dict[str, Any]] | None, dict[str, Any] | None, dict[str, Any]]:
    """Return the tools and the settings of a model event, and a dict for its `extra`.

    The dict holds the replaced references, and tools or settings of the wrong type.

    Args:
        told: replaces the references in the event by the texts of attachments.
    """
    made, extra = told.read({key: dig(event, key) for key in ("tools", "config")})
    given, config = made["tools"], made["config"]
    if not isinstance(config, dict | None):
        extra["config"], config = config, None
    if not isinstance(given, list | None) or not all(isinstance(tool, dict) for tool in given or ()):
        extra["tools"], given = given, None
    tools = [{TOOL.get(key, key): value for key, value in tool.items()} for tool in given or ()]
    return tools or None, config or None, extra


def words(content: Any) -> tuple[str, str | None, bool]:
    """Return the text and the reasoning of a message's content, and whether they are all that it contains.

    Each part is a line of the text. A note such as `[image]` names a part that is not text. Redacted reasoning is
    replaced by its summary.
    """
    if content is None or isinstance(content, str):
        return content or "", None, True
    if not isinstance(content, list):
        return "", None, False
    lines, thoughts = [], []
    for part in content:
        kind = dig(part, "type")
        if kind == "reasoning":
            hidden = dig(part, "redacted") is True
            thought = dig(part, "summary" if hidden else "reasoning")
            thoughts += [thought] if isinstance(thought, str) else []
        elif kind == "text" and isinstance(part.get("text"), str):
            lines.append(part["text"])
        else:
            lines.append(f"[{plain_name(kind) or 'part'}]")
    text, reasoning = "\n".join(lines), "\n".join(thoughts) or None
    plain = [{"type": "reasoning", "reasoning": reasoning}] if reasoning else []
    whole: tuple[list[Any], ...] = ([], plain, [*plain, {"type": "text", "text": text}])
    return text, reasoning, any(same(content, one) for one in whole)


def done(members: Members) -> When:
    """Remove the time at which an event was completed from the event's members, and return that time.

    Older logs lack it. For these, the time at which the event was logged is removed and returned instead.
    """
    completed = members.time("completed")
    return members.time("timestamp") if completed[0] is None else completed


def latency(event: Any) -> float | None:
    """Return how long a model took to reply, in milliseconds; `None` if the source does not state it."""
    seconds = dig(event, "output", "time")
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and abs(seconds) < 1e9  # false for nan
    return seconds * 1000.0 if known else None
