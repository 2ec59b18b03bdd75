"""Rewrites JSON schemas for Gemini, which enforces a part of JSON Schema and silently ignores the rest.

`parametersJsonSchema` and `responseJsonSchema` accept all of JSON Schema. The older `parameters` and `responseSchema`
accept only a part of OpenAPI 3.0: they answer 400 to `additionalProperties`, `const`, `$ref` or a list of types. The
newer ones are used, so no keyword is left out. Keywords that Gemini refuses or does not enforce fully are rewritten.

Source: Gemini API reference, "FunctionDeclaration" and "GenerationConfig" (which lists what is read), read 2026-11;
keywords beside `$ref` refused: su-kaka/gcli2api#374, 2026-05; the schemas of recorded requests that were answered.
"""

from collections.abc import Iterator
from typing import Any

TABLES = ("properties", "patternProperties", "$defs")
"""Members of a schema that hold schemas by name."""
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
DATA = ("default", "enum", "const", "examples", "required")
"""Members of a schema that hold values, not schemas, even if a value looks like a schema."""
OLD = "definitions"
"""The older name of `$defs`, which Gemini does not read."""

NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments in a form that Gemini accepts. It always describes an object."""
    made: dict[str, Any] = adapted(_rooted(schema))
    return made if made.get("type") == "object" else {"type": "object"} | made | {"type": "object"}


def held(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of an answer in a form that Gemini can enforce; `None` if no finite value can fit it.

    Gemini expands references. So every cycle of references must lead through a member that may be missing.
    """
    made: dict[str, Any] = adapted(_rooted(schema))
    leads = {
        at: {*_refs(node)}
        for at, node in [*((f"#/$defs/{name}", node) for name, node in _table(made, "$defs")), ("#", made)]
    }
    while ends := [at for at, refs in leads.items() if refs.isdisjoint(leads)]:
        for at in ends:
            del leads[at]
    return None if leads else made


def adapted(node: Any) -> Any:
    """Return a schema in a form that Gemini enforces: keywords that it would refuse or ignore are rewritten."""
    if not isinstance(node, dict):
        return {} if node is True else node
    made: dict[str, Any] = {}
    for name, value in node.items():
        if name in (*TABLES, OLD) and isinstance(value, dict):
            table = "$defs" if name == OLD else name
            made[table] = made.get(table, {}) | {key: adapted(inner) for key, inner in value.items()}
        elif name in LISTS and isinstance(value, list):
            made[name] = [adapted(inner) for inner in value]
        elif name == "$ref" and isinstance(value, str):
            made[name] = value.replace(f"#/{OLD}/", "#/$defs/", 1)
        elif name not in ("$schema", "const", "enum") and not (name == "items" and value is True):
            made[name] = value if name in DATA or not isinstance(value, dict) else adapted(value)
    if "const" in node or "enum" in node:
        _choices(made, [node["const"]] if "const" in node else node["enum"])
    if "prefixItems" in made and made.get("items") is False:  # not documented whether Gemini reads items: false
        del made["items"]
        made.setdefault("maxItems", len(made["prefixItems"]))
    if "anyOf" not in made:
        _alone(made)
    return made


def _choices(made: dict[str, Any], values: Any) -> None:
    """Add the allowed values to a schema.

    Strings and numbers are listed; booleans and null are expressed by their type.

    Args:
        made: the schema, which is changed.
        values: the allowed values. Values of several types become an `anyOf`.
    """
    by_type: dict[str | None, list[Any]] = {}
    for value in values if isinstance(values, list) else ():
        by_type.setdefault(NAMES.get(type(value)), []).append(value)
    if not by_type or None in by_type or (len(by_type) > 1 and "anyOf" in made):
        made["enum"] = values
        return
    listed = {"string", "integer", "number"}
    kinds = [{"type": kind} | ({"enum": found} if kind in listed else {}) for kind, found in by_type.items()]
    if len(kinds) == 1:
        made.update(kinds[0] | {name: value for name, value in made.items() if name == "type"})
    else:
        made.pop("type", None)
        made["anyOf"] = kinds


def _alone(made: dict[str, Any]) -> None:
    """Change a schema in place: move a `$ref` that has other members beside it into `anyOf`.

    Gemini refuses such a `$ref` otherwise. An `allOf` with a single schema also becomes an `anyOf`.
    """
    if isinstance(made.get("$ref"), str):
        if any(not name.startswith("$") for name in made):
            made["anyOf"] = [{"$ref": made.pop("$ref")}]
    elif isinstance(one := made.get("allOf"), list) and len(one) == 1:
        made["anyOf"] = made.pop("allOf")


def _rooted(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose top is not a reference.

    A reference at the top is replaced by the schema that it refers to. Members beside the reference are kept.
    """
    seen: set[str] = set()
    named = {f"#/{table}/{name}": node for table in ("$defs", OLD) for name, node in _table(schema, table)}
    while isinstance(ref := schema.get("$ref"), str) and isinstance(named.get(ref), dict) and ref not in seen:
        seen.add(ref)
        schema = named[ref] | {name: value for name, value in schema.items() if name != "$ref"}
    return schema


def _table(schema: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    table = schema.get(name)
    return list(table.items()) if isinstance(table, dict) else []


def _refs(node: Any) -> Iterator[str]:
    """Yield the references (`$ref`) in a schema, except those inside optional properties and inside `$defs`."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            needed = node.get("required")
            for name, inner in node.items():
                if name == "properties" and isinstance(inner, dict):
                    stack += [inner[key] for key in inner if isinstance(needed, list) and key in needed]
                elif name not in (*DATA, "$defs"):
                    stack.append(inner)
