"""Makes tools from the tools, resources and prompts that a server lists.

The server is not trusted: its names, descriptions and schemas are checked, and their sizes are limited. A tool that
cannot be offered to a model is left out with a warning. Resources and prompts become two more tools, `read_resource`
and `get_prompt`, which only read; their descriptions list what can be read. The effect policy of a tool says whether a
call with an unknown outcome may be repeated. The `Rules` choose the tools that an agent gets, and may set their effect
policies.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from gesta.bridges.mcp.results import listed
from gesta.bridges.mcp.spec import Rules
from gesta.codec.rows import digest_of
from gesta.content import ToolServer
from gesta.errors import AgentError
from gesta.events import LOGGER
from gesta.function_tool.tool import Effect, Tool
from gesta.text.visible import unseen

MOST_TOOLS, MOST_BYTES, MOST_CHARS, MOST_DEEP, MOST_LISTED = 500, 100_000, 8_000, 40, 50
NAME = 64
CONTEXT = "gesta context"
"""Name of the parameter that gets the tool's context.

It has a space, so no argument from a model can have this name.
"""
Method = Literal["tools/call", "resources/read", "prompts/get"]
URI = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"], "additionalProperties": False}
PROMPT = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}


class Offer(Struct, frozen=True, kw_only=True):
    """A tool of a server, with the protocol's method that calls it."""

    method: Method
    name: str
    """The server's own name for the tool."""
    effect: Effect
    server: str
    """Name of the server."""


class Listing(Struct, frozen=True):
    """The tools, resources and prompts that a server listed at one time."""

    name: str
    version: str | None
    tools: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    resource_templates: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[dict[str, Any]] = field(default_factory=list)


def clean(text: Any, most: int) -> str:
    """Return a text without invisible characters, cut to at most `most` characters; an empty text for another type."""
    words = text if isinstance(text, str) else ""
    shown = words if words.isascii() and words.isprintable() else "".join(each for each in words if not unseen(each))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def tools_of(
    listing: Listing, rules: Rules, shown: str, call: Callable[[Offer], Any], had: Sequence[Tool] = ()
) -> list[Tool]:
    """Return the tools of a server that the rules choose for an agent.

    Args:
        shown: the server's address, for warnings and errors.
        call: returns the function that runs when a model calls the tool.
        had: tools of the server that the turn has already; empty if the turn begins now.

    Raises:
        AgentError: a rule names a tool that the server does not have, and the server has one with a similar name. Or a
            tool in `had` that a person approves is gone: under another name it would run without approval.
    """
    offered = [*listing.tools, *_readers(listing)]
    names = [str(each.get("name")) for each in offered]
    _check_names(rules, names, shown)
    _check_approved(rules, names, had, shown)
    made, taken, over = list[Tool](), set[str](), 0
    for each in offered:
        name = str(each.get("name"))
        if not rules.chosen(name):
            continue
        if len(made) >= MOST_TOOLS:
            over += 1
            continue
        problem = unusable(each)
        if problem is not None:
            LOGGER.warning("The tool %.100r of the MCP server %s is left out: %s.", name, shown, problem)
            continue
        tool = _tool(each, listing, rules, call, taken)
        taken.add(tool.name)
        made.append(tool)
    if over:
        LOGGER.warning("The MCP server %s lists more than %s tools; %s are left out.", shown, MOST_TOOLS, over)
    return made


def _check_names(rules: Rules, names: list[str], shown: str) -> None:
    for name, near in rules.misspelt(names):
        if near:
            has = ", ".join(names[:MOST_LISTED])
            raise AgentError(f"gesta.mcp: {name!r} names no tool of the MCP server {shown}.{near} It has: {has:.2000}.")
        LOGGER.warning("gesta.mcp: %r names no tool of the MCP server %s.", name, shown)


def _check_approved(rules: Rules, names: list[str], had: Sequence[Tool], shown: str) -> None:
    if all(map(rules.asks, names)):
        return
    for tool in had:
        own = (tool.server.tool if tool.server is not None else None) or tool.name
        if tool.approval and own not in names:
            raise AgentError(f"gesta.mcp: the MCP server {shown} lists no tool {own!r} now, which a person approves.")


def _tool(
    each: Mapping[str, Any], listing: Listing, rules: Rules, call: Callable[[Offer], Any], taken: set[str]
) -> Tool:
    name, hints = str(each["name"]), each.get("annotations") or {}
    effect, declared = _effect(hints, rules.effect(name))
    told = {
        key: each.get(key) for key in ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
    }
    offer = Offer(method=each.get("method", "tools/call"), name=name, effect=effect, server=listing.name)
    title = clean(each.get("title") or hints.get("title"), 200)
    description = clean(each.get("description"), MOST_CHARS)
    own = f"{listing.name}_{name}" if offer.method != "tools/call" and not rules.prefix else f"{rules.prefix}{name}"
    named = _name(own, taken)
    server = ToolServer(
        name=listing.name,
        version=listing.version,
        schema=digest_of(told),
        tool=name if name != named else None,
    )
    return Tool(
        name=named,
        description="\n".join(text for text in (title if title != name else "", description) if text),
        args_schema=_schema(each.get("inputSchema") or {}),
        function=call(offer),
        effect=effect,
        declared=declared,
        approval=rules.asks(name),
        timeout_s=rules.timeout_s(name),
        context_names=(CONTEXT,),
        server=server,
    )


def _effect(hints: Mapping[str, Any], given: Effect | None) -> tuple[Effect, bool]:
    """Return the effect policy of a tool, and whether the rules or the server declared it.

    If neither did, the policy is `once`.

    Args:
        hints: the server's annotations of the tool, such as `readOnlyHint`.
        given: the policy that the rules set; `None` if they set none.
    """
    if given is not None:
        return given, True
    if hints.get("readOnlyHint") is True:
        return "pure", True
    if hints.get("idempotentHint") is True:
        return "idempotent", True
    return "once", hints.get("readOnlyHint") is False or hints.get("idempotentHint") is False


def _name(own: str, taken: set[str]) -> str:
    """Return the server's name of a tool, changed so that model providers accept it and `taken` does not contain it."""
    name = plain = re.sub(r"[^a-zA-Z0-9_-]", "_", own)
    number = 0
    while len(name) > NAME or name in taken:
        name = f"{plain[: NAME - 9]}_{digest_of([own, number] if number else own)[:8]}"
        number += 1
    return name


def unusable(each: Mapping[str, Any]) -> str | None:
    """Return the reason why a tool cannot be offered to a model; `None` if it can."""
    name, schema = each.get("name"), each.get("inputSchema", {})
    if not isinstance(name, str) or not name or len(name) > 200:
        return "its name is not a text of 1 to 200 characters"
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return "its schema is not that of an object"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(part, dict | bool) for part in properties.values()):
        return "the properties of its schema are not schemas"
    if not isinstance(required, list) or not all(isinstance(key, str) for key in required):
        return "its schema requires members that are not names"
    if (each.get("execution") or {}).get("taskSupport") == "required":
        return "it can only be called as a task of MCP"
    problem = _odd(schema, MOST_DEEP)
    if problem is None and len(msgspec.json.encode(schema)) > MOST_BYTES:
        problem = f"its schema has more than {MOST_BYTES} bytes"
    return problem


def _odd(part: Any, deep: int) -> str | None:
    """Return what is wrong in a part of a schema; `None` if nothing is.

    A schema may not be nested more than `deep` levels, and may not refer to another document.
    """
    if deep == 0:
        return f"its schema is deeper than {MOST_DEEP}"
    if isinstance(part, dict):
        reference = part.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            return "its schema refers to another document"
        return next((problem for each in part.values() if (problem := _odd(each, deep - 1))), None)
    if isinstance(part, list):
        return next((problem for each in part if (problem := _odd(each, deep - 1))), None)
    return None


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, with invisible characters removed from its descriptions and titles."""
    kept = {key: each for key, each in schema.items() if key not in ("$schema", "$id", "description", "title")}
    return {"type": "object", "properties": {}, **_texts(kept)}


def _texts(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: clean(each, MOST_CHARS) if key in ("description", "title") and isinstance(each, str) else _texts(each)
            for key, each in part.items()
        }
    return [_texts(each) for each in part] if isinstance(part, list) else part


def _readers(listing: Listing) -> list[dict[str, Any]]:
    """Return the tools `read_resource` and `get_prompt` in the form of the server's tools.

    Each is left out if the server has no resources or no prompts, or if the server itself has a tool of that name.
    """
    own, found = {each.get("name") for each in listing.tools}, list[dict[str, Any]]()
    if (listing.resources or listing.resource_templates) and "read_resource" not in own:
        known = [_line(each.get("uri"), each) for each in listing.resources]
        known += [f"{_line(each.get('uriTemplate'), each)} (fill in the braces)" for each in listing.resource_templates]
        said = f"Read a resource of {listing.name} by its URI:\n{listed(known, MOST_LISTED)}"
        found.append({"name": "read_resource", "description": said, "inputSchema": URI, "method": "resources/read"})
    if listing.prompts and "get_prompt" not in own:
        known = []
        for each in listing.prompts:
            wants = ", ".join(clean(arg.get("name"), 60) for arg in each.get("arguments", ()) if isinstance(arg, dict))
            known.append(f"{_line(each.get('name'), each)} (arguments: {wants or 'none'})")
        said = f"Get a prompt of {listing.name} by its name:\n{listed(known, MOST_LISTED)}"
        found.append({"name": "get_prompt", "description": said, "inputSchema": PROMPT, "method": "prompts/get"})
    return [{**each, "annotations": {"readOnlyHint": True}} for each in found]


def _line(key: Any, each: Mapping[str, Any]) -> str:
    said = clean(each.get("description") or each.get("title") or each.get("name"), 200).replace("\n", " ")
    return f"{clean(key, 200)}: {said}" if said and said != key else clean(key, 200)
