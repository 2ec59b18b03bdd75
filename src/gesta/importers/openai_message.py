"""Messages as in OpenAI's chat, which many sources have: what one says, for `chat` to take in.

Roles are system, developer, user, assistant, tool and function. A list of parts becomes one text, a line for each part;
what is no text is named in a note such as `[image]`, and unless the list is one text, it stays in `extra.content` as it
came. The older `function_call` is a call without an id, the answer of role function a result without one. What chat
has no place for (`name`, `weight`, `refusal`, `audio`, the roles developer and function) stays in `extra`.

Source: OpenAI's OpenAPI document 2.3.0, `FineTuneChatRequestInput` and the messages that it names.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

from gesta.importers.chat import Made, Said
from gesta.importers.foreign import Members, Oddities, plain_name

SPOKEN = ("user", "assistant", "tool", "function")
ROLES = ("system", "developer", *SPOKEN)
SAME: Mapping[str, str] = MappingProxyType({"developer": "system", "function": "tool"})
"""Roles that are another by an older or newer name."""
SHOWN_AS: Mapping[str, str] = MappingProxyType({"image_url": "image", "input_audio": "audio"})
"""What a note calls a part; of other types, the type itself."""
CUT = "The source ends here, before an answer, and does not say why."


def said(message: Any, names: dict[str, str], oddities: Oddities) -> Said | None:
    """Read a message; `None` if it is not a message.

    Args:
        names: of the tools that were called so far, by the ids of the calls; calls of this message are added. That of
            the only call of a message, if it has no id, is under the empty id until it is answered.
    """
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ROLES:
        return None
    members = Members(message, oddities)
    same = SAME.get(role, role)
    members.drop("role", same)
    if same == "tool":
        return _result(message, members, names)
    text = take_text(message, members) or ""
    if role != "assistant":
        return Said(role=same, text=text, extra=members.rest())
    refusal, reasoning = message.get("refusal"), members.take("reasoning_content", str)
    given, function = members.take("tool_calls", list) or [], members.take("function_call", dict)
    calls = [_made(call, oddities) for call in [*given, *([{"function": function}] if function else [])]]
    names.update({made.id: made.name for made in calls if made.id and made.name})
    names[""] = (calls[0].name or "") if len(calls) == 1 and not calls[0].id else ""
    text = text or (refusal if isinstance(refusal, str) else "")
    return Said(role=role, text=text, calls=calls, reasoning=reasoning, extra=members.rest())


def take_text(message: dict[str, Any], members: Members, key: str = "text", hidden: Collection[str] = ()) -> str | None:
    """Return the content of a message as text. What a list of parts holds beside its text stays in its members.

    Args:
        key: member of a part that holds its text.
        hidden: types of parts that were shown to nobody; they do not count as text.
    """
    content = message.get("content")
    if not is_parts(content):
        return members.take("content", str)
    text = "\n".join(_part_text(part, key) for part in content if part["type"] not in hidden)
    if content in ([], [{"type": "text", key: text}]):
        members.drop("content", content)
    return text


def is_parts(content: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Whether this is a list of parts, each of a type."""
    return isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    )


def ends_answered(messages: Collection[Any]) -> bool:
    """Whether the last that was said is an answer, or nothing was said at all."""
    every = [message for message in messages if isinstance(message, dict) and message.get("role") in SPOKEN]
    last = every[-1] if every else {"role": "assistant"}
    return last["role"] == "assistant" and not (
        (isinstance(last.get("tool_calls"), list) and last["tool_calls"])
        or (isinstance(last.get("function_call"), dict) and last["function_call"])
    )


def _part_text(part: dict[str, Any], key: str) -> str:
    text = part.get("refusal" if part["type"] == "refusal" else key)
    if part["type"] in ("text", "refusal") and isinstance(text, str):
        return text
    return f"[{plain_name(SHOWN_AS.get(part['type'], part['type']))}]"


def _result(message: dict[str, Any], members: Members, names: dict[str, str]) -> Said:
    call_id = members.take("tool_call_id", str) or None
    content = message.get("content")
    result = take_text(message, members) if content and is_parts(content) else members.take("content", object)
    members.drop("name", names.get(call_id, "") if call_id else names.pop("", ""))
    return Said(role="tool", call_id=call_id, result=result, extra=members.rest())


def _made(call: Any, oddities: Oddities) -> Made:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        oddities["wrong-type"] += 1
        return Made(name=None, args=None, id=None, extra={"call": call})
    members, function = Members(call, oddities), Members(call["function"], oddities)
    members.take("function", dict)
    members.drop("type", "function")
    name, args, call_id = function.take("name", str), function.take("arguments", object), members.take("id", str)
    more = function.rest()
    rest = (members.rest() or {}) | ({"function": more} if more else {})
    return Made(name=name, args=args, id=call_id or None, extra=rest or None)
