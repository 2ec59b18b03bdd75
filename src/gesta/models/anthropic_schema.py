"""Rewrites JSON schemas for Claude, which accepts only a part of JSON Schema and refuses the rest with status 400.

Every object must be closed, references must not be circular, and bounds are not supported. Members of a schema that
Claude accepts stay unchanged. The others are written into its description, as the provider's own libraries do. A
schema whose meaning would change, such as an object with any keys, is not enforced: the model is asked in words.

Source: platform.claude.com, "Structured outputs", section "JSON Schema limitations", and anthropic-sdk-python,
`lib/_parse/_transform.py`, read 2026-11; recursion tried on the live API in egonSchiele/agency-lang#487, 2026-07.
"""

from collections.abc import Iterator
from typing import Any

from gesta.models.jsontext import compact

FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
TAKEN = ("type", "enum", "const", "title", "description", "required", "default")
SAYS = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "properties"}
"""A schema needs at least one of these members, because Claude cannot enforce a schema that allows every value."""

OPEN = ("additionalProperties", "unevaluatedProperties", "patternProperties")
TABLES = ("$defs", "definitions")
SILENT = ("$schema", "$id", "discriminator")
TYPED = {"type", "enum", "const", "$ref", "anyOf"}
TOP = ("oneOf", "allOf", "anyOf")
"""Members that Claude refuses at the top of the schema of a tool's arguments."""


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments in a form that Claude accepts.

    Members that Claude refuses at the top are left out; the tool itself still checks the arguments.
    """
    if schema.get("type") == "object" and not any(name in schema for name in TOP):
        return schema
    return {"type": "object"} | {name: value for name, value in schema.items() if name not in ("type", *TOP)}


def held(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of an answer in a form that Claude can enforce; `None` if that would change the meaning."""
    try:
        _refuse_cycles(schema)
        return _node(schema)
    except (ValueError, RecursionError):
        return None


def _node(node: Any) -> dict[str, Any]:
    """Return a schema rewritten so that Claude accepts it. Raises ValueError if Claude accepts no equivalent."""
    if not isinstance(node, dict):
        raise ValueError("no grammar takes just any value")  # noqa: TRY004 - the caller's word for a bad schema
    kept: dict[str, Any] = {
        table: {name: _node(inner) for name, inner in node[table].items()}
        for table in TABLES
        if isinstance(node.get(table), dict)
    }
    one = node["allOf"][0] if isinstance(node.get("allOf"), list) and len(node["allOf"]) == 1 else None
    ref = node.get("$ref", one.get("$ref") if isinstance(one, dict) else None)
    if ref is not None:  # Claude refuses other members beside a reference
        return kept | {"$ref": ref}
    if SAYS.isdisjoint(node):
        raise ValueError("no grammar takes just any value")
    left = {name: value for name, value in node.items() if not _keep(kept, name, value)}
    told = {name: value for name, value in left.items() if name not in (*SILENT, *TABLES)}
    kind = kept.get("type")
    if "properties" in kept or kind == "object" or (isinstance(kind, list) and "object" in kind):
        if "anyOf" in kept:
            raise ValueError("an object that is closed has no other members")
        kept |= {"type": kind or "object", "properties": kept.get("properties", {}), "additionalProperties": False}
    elif kind is not None and "anyOf" in kept:  # Claude refuses a type beside anyOf
        del kept["type"]
        kept["anyOf"] = [branch if TYPED & branch.keys() else {"type": kind} | branch for branch in kept["anyOf"]]
    if told:
        words = [kept["description"]] if isinstance(kept.get("description"), str) else []
        kept["description"] = "\n\n".join([*words, compact(told).decode()])
    return kept


def _keep(kept: dict[str, Any], name: str, value: Any) -> bool:
    """Copy one member into the rewritten schema, if Claude accepts it.

    Return `True` if the member was copied or is not needed, or `False` if the schema's description must state it.
    Raises ValueError if the meaning would change.

    Args:
        kept: the rewritten schema so far, which is changed.
        name: name of the member.
        value: its value in the original schema.
    """
    if name in OPEN:
        if value is not False:
            raise ValueError("an object of any keys would become an empty one")
    elif name in TAKEN or (name == "format" and value in FORMATS) or (name == "minItems" and value in (0, 1)):
        kept[name] = value
    elif name == "properties" and isinstance(value, dict):
        kept[name] = {key: _node(inner) for key, inner in value.items()}
    elif name == "items" and isinstance(value, dict):
        kept[name] = _node(value)
    elif name == "allOf" and isinstance(value, list):
        if any("$ref" in inner for inner in value if isinstance(inner, dict)):
            raise ValueError("a reference among several is refused")
        kept[name] = [_node(inner) for inner in value]
    elif name in ("anyOf", "oneOf") and isinstance(value, list) and "anyOf" not in kept:
        kept["anyOf"] = [_node(inner) for inner in value]
    elif name == "prefixItems" and isinstance(value, list):
        kept["items"] = {"anyOf": [_node(inner) for inner in value]}
        return False  # the description states the order
    else:
        return name == "items" and value is False
    return True


def _refuse_cycles(schema: dict[str, Any]) -> None:
    """Raise ValueError if a reference is part of a cycle, or refers to something outside `$defs` and `definitions`."""
    tables = {table: schema[table] for table in TABLES if isinstance(schema.get(table), dict)}
    named = {f"#/{table}/{name}": inner for table, inners in tables.items() for name, inner in inners.items()}
    ends: set[str] = set()
    path: list[tuple[str, Iterator[str]]] = [("#", _refs(schema))]
    while path:
        at, refs = path[-1]
        ref = next(refs, None)
        if ref is None:
            ends.add(at)
            path.pop()
        elif ref not in named or any(ref == above for above, _ in path):
            raise ValueError(f"{ref!r} does not end")
        elif ref not in ends:
            path.append((ref, _refs(named[ref])))


def _refs(node: Any) -> Iterator[str]:
    """Yield the references in a schema, except those inside the schema's own `$defs` and `definitions`."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            stack += [inner for name, inner in node.items() if name not in TABLES]
        elif isinstance(node, list):
            stack += node
