"""Reads the messages of a chat, in the forms that most sources use, for `chat`.

Roles are system, developer, user, assistant, tool and function. A list of parts becomes one text with a line for each
part. A part that is not text is named in a note such as `[image]`; unless the list is a single text, it is also kept in
`extra.content`. An older `function_call` is read as a call without an id, and a message of role function as a result
without one. Members for which `chat` has no field (`name`, `weight`, `refusal`, `audio`) are kept in `extra`. Problems
of the source are counted by name in `oddities`.

Source: OpenAI's OpenAPI document 2.3.0, `FineTuneChatRequestInput` and the messages that it names.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

from msgspec import Struct

from gesta.importers.chat import Made, Said
from gesta.importers.foreign import Members, Oddities, plain_name
from gesta.importers.format import members_of

SPOKEN = ("user", "assistant", "tool", "function")
ROLES = frozenset({"system", "developer", *SPOKEN})
SAME: Mapping[str, str] = MappingProxyType({"developer": "system", "function": "tool"})
"""Gesta's name for a role that has another name in the source."""
TEXTS = ("text", "input_text", "output_text")
"""Types of parts that hold a text. The Responses API of OpenAI has the last two."""
SHOWN_AS: Mapping[str, str] = MappingProxyType({"image_url": "image", "input_audio": "audio"})
"""The word for a part in a note such as `[image]`, by the part's type. For another type, the type itself is the
word."""
KEPT = members_of(
    """role content name weight refusal audio annotations tool_calls tool_call_id function_call reasoning_content type
    function index id cache_control provider_specific_fields call"""
)
"""Names of known members of messages and calls. They may stay in `extra`, and are not reported as unknown."""
CUT = "The source ends here, before an answer, and does not say why."


class Form(Struct, frozen=True, kw_only=True):
    """The names of the JSON members in which a source keeps the calls, results and texts of a message.

    Where several names are listed, the first one that occurs is used.
    """

    inside: str = ""
    """Member of a call that is an object with the name and the arguments; `""` if calls have no such member."""
    flat: bool = True
    """Whether a call may hold its name and arguments directly."""
    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments",)
    """Members of a call that hold the arguments, as an object or as text."""
    id: tuple[str, ...] = ("id",)
    types: tuple[str, ...] = ("function",)
    """Values of a call's `type` that say only that it is a call, such as `function`. They are not kept in `extra`."""
    by: str = ""
    """Member of a call that names the role of the caller."""
    answers: str = "tool_call_id"
    """Member of a result that holds the id of its call."""
    text: str = "text"
    """Member of a part that holds its text."""
    hidden: tuple[str, ...] = ()
    """Types of parts that the model did not show. They are left out of the text."""
    calling: Collection[str] = ("assistant",)
    """Roles whose messages may contain calls."""


OPENAI = Form(inside="function", flat=False)


def said(message: Any, names: dict[str, str], oddities: Oddities, form: Form = OPENAI) -> Said | None:
    """Return a message in the form that `Chat` takes; `None` if the value is not a message.

    Args:
        names: names of the tools that were called so far, by the id of the call. Calls of this message are added. The
            name of a single call without an id is stored under `""`.
        form: the names of the members in this source.
    """
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in ROLES:
        return None
    members = Members(message, oddities)
    same = SAME.get(role, role)
    if same is role:
        members.take("role", str)
    if same == "tool":
        return _result(message, members, names, form)
    text = take_text(message, members, form) or ""
    if role not in form.calling:
        return Said(role=same, text=text, extra=members.rest())
    given, function = members.take("tool_calls", list) or (), members.take("function_call", dict)
    calls = [made(call, oddities, form, role) for call in ((*given, {form.inside: function}) if function else given)]
    names[""] = ""
    for call in calls:
        if call.name and (call.id or len(calls) == 1):
            names[call.id or ""] = call.name
    refusal, reasoning = message.get("refusal"), members.take("reasoning_content", str)
    text = text or (refusal if isinstance(refusal, str) else "")
    return Said(role=role, text=text, calls=calls, reasoning=reasoning, extra=members.rest())


def made(call: Any, oddities: Oddities, form: Form, by: str = "assistant") -> Made:
    """Return a tool call, read from a value of the source.

    If the value is not an object with a name or arguments, the call has neither, and `extra` keeps the value.

    Args:
        form: the names of the members in this source.
        by: the role that made the call.
    """
    function = call.get(form.inside) if isinstance(call, dict) else None
    within = isinstance(function, dict)
    if not (within or (form.flat and isinstance(call, dict))):
        oddities["wrong-type"] += 1
        return Made(name=None, args=None, id=None, extra={"call": call})
    members = Members(call, oddities)
    inner = Members(members.take(form.inside, dict) or {}, oddities) if within else members
    for kind in form.types:
        members.drop("type", kind)
    if form.by:
        members.drop(form.by, by)
    name, args = first(inner, form.name), None
    for key in form.arguments:
        args = inner.take(key, object) if args is None else args
    call_id, more = first(members, form.id), inner.rest() if within else None
    rest = members.rest()
    return Made(name=name, args=args, id=call_id or None, extra={**(rest or {}), form.inside: more} if more else rest)


def tool(given: Any, oddities: Oddities) -> dict[str, Any] | None:
    """Return the definition of a tool as `{name, description, args_schema}`; `None` if the value defines no function.

    Other members of the value are kept in the definition's `extra`.
    """
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        oddities["wrong-type"] += 1
        return None
    around, members = Members(given, oddities), Members(function, oddities)
    around.take("function", dict)
    around.drop("type", "function")
    made: dict[str, Any] = {"name": members.take("name", str)}
    made["description"] = members.take("description", str) or ""
    made["args_schema"] = members.take("parameters", dict) or {}
    more = members.rest()
    rest = (around.rest() or {}) | ({"function": more} if more else {})
    return made | ({"extra": rest} if rest else {})


def first(members: Members, keys: tuple[str, ...]) -> str | None:
    """Remove and return the first member named in `keys` that is a text; `None` if no such member is a text."""
    for key in keys:
        if (text := members.take(key, str)) is not None:
            return text
    return None


def take_text(message: dict[str, Any], members: Members, form: Form = OPENAI) -> str | None:
    """Return the content of a message as text; `None` if the message has no content.

    The member `content` is removed from `members`, unless it has parts that a single text cannot hold.
    """
    content = message.get("content")
    if not isinstance(content, list) or not is_parts(content):
        return members.take("content", str)
    text = "\n".join(_part_text(part, form.text) for part in content if part["type"] not in form.hidden)
    if content in ([], [{"type": "text", form.text: text}]):
        members.drop("content", content)
    return text


def is_parts(content: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Return whether a value is a list of parts: objects that each have a `type`."""
    return isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    )


def ends_answered(messages: Collection[Any]) -> bool:
    """Return whether the last message is an answer of the assistant, which calls no tool.

    If there are no messages, return `True`.
    """
    every = [message for message in messages if isinstance(message, dict) and message.get("role") in SPOKEN]
    last = every[-1] if every else {"role": "assistant"}
    return last["role"] == "assistant" and not (
        (isinstance(last.get("tool_calls"), list) and last["tool_calls"])
        or (isinstance(last.get("function_call"), dict) and last["function_call"])
    )


def _part_text(part: dict[str, Any], key: str) -> str:
    text = part.get("refusal" if part["type"] == "refusal" else key)
    if part["type"] in (*TEXTS, "refusal") and isinstance(text, str):
        return text
    return f"[{plain_name(SHOWN_AS.get(part['type'], part['type']))}]"


def _result(message: dict[str, Any], members: Members, names: dict[str, str], form: Form) -> Said:
    call_id = members.take(form.answers, str) or None
    content = message.get("content")
    result = take_text(message, members, form) if content and is_parts(content) else members.take("content", object)
    members.drop("name", names.get(call_id, "") if call_id else names.pop("", ""))
    return Said(role="tool", call_id=call_id, result=result, extra=members.rest())
