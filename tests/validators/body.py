"""What bodies of all providers have in common: tags, keys, base64, schemas. No rule here belongs to one provider.

The rules of the three validators that build on this say where they come from, at the end of a line or of a group:

- [D] the provider's documentation, with the page or file and its date in the docstring of the module;
- [E] an error message of the provider, seen in an issue, with the issue and its date in the docstring;
- [S] stricter than the provider, and for whom.

"Recorded" in a comment: traffic that got a 2xx reply shows that the provider takes it, so no rule forbids it.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from tests.validators.chat_completions import Found

DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)(;[\w-]+=[^;,]*)*;base64,(?P<data>.*)", re.DOTALL)
NESTED = ("items", "not", "additionalProperties")  # keywords with one schema
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")  # with an array of schemas
NAMED = ("properties", "$defs", "definitions")  # with an object of schemas


class Body(Found):
    """The violations found so far in a body."""

    def text(self, value: Any, path: str, *, blank: bool = True) -> bool:
        """A string; where it may not be blank, one with more in it than white space."""
        if not self.must(isinstance(value, str), path, "must be a string"):
            return False
        return blank or self.must(value.strip(), path, "must not be blank")

    def whole(self, value: Any, path: str, least: int) -> bool:
        ok = isinstance(value, int) and not isinstance(value, bool)
        return self.must(ok, path, "must be an integer") and self.must(value >= least, path, f"must be {least} or more")

    def between(self, value: Any, path: str, least: float, most: float) -> None:
        ok = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
        self.must(ok, path, f"must be a number from {least} to {most}")

    def one_of(self, value: Any, path: str, known: list[Any]) -> bool:
        return self.must(value in known and not isinstance(value, bool), path, f"must be one of {known}")

    def keys(self, value: dict[Any, Any], path: str, known: list[str]) -> None:
        """No key that the provider does not know."""
        for key in value:
            at = f"{path}.{ascii(key)[1:-1] if isinstance(key, str) else key}"
            self.must(key in known, at.removeprefix("$."), "unknown parameter")

    def base64(self, value: Any, path: str) -> None:
        """Base64 of at least a byte."""
        if self.text(value, path) and self.must(value, path, "empty base64"):
            self.must(is_base64(value), path, "must be base64")

    def data_url(self, value: str, path: str, type: str) -> None:
        """A URL of the web, or a data URL of this media type with something in it."""
        found = DATA_URL.fullmatch(value)
        if found and self.must(found["type"].startswith(type), path, f"must have a media type {type}"):
            self.base64(found["data"], path)
        rule = "must be a URL with http(s), or a data URL with a media type and base64"
        self.must(found or value.startswith(("https://", "http://")), path, rule)

    def object_schema(self, schema: Any, path: str) -> None:
        """A JSON Schema of an object, as parameters of a function have."""
        if self.must(isinstance(schema, dict) and schema.get("type") == "object", path, "must be an object schema"):
            properties, required = schema.get("properties", {}), schema.get("required", [])
            ok = isinstance(properties, dict) and all(isinstance(value, dict | bool) for value in properties.values())
            self.must(ok, f"{path}.properties", "must be an object of schemas")
            ok = isinstance(required, list) and all(isinstance(name, str) for name in required)
            self.must(ok, f"{path}.required", "must be an array of strings")

    def closed(self, schema: Any, path: str, *, all_required: bool) -> None:
        """Every object in the schema refuses further properties and, if so asked, requires all that it has."""
        for at, node in nodes(schema, path):
            if node.get("type") == "object" or (isinstance(node.get("type"), list) and "object" in node["type"]):
                closed = node.get("additionalProperties") is False
                self.must(closed, f"{at}.additionalProperties", "must be false in each object")
                properties, required = node.get("properties"), node.get("required")
                names = [*properties] if isinstance(properties, dict) else []
                missing = [name for name in names if not isinstance(required, list) or name not in required]
                self.must(not (all_required and missing), f"{at}.required", f"must name every property, not {missing}")


def is_base64(value: str) -> bool:
    """Base64 in either alphabet, padded or not; line breaks are none of it."""
    plain = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def nodes(schema: Any, path: str) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Every schema inside a JSON Schema, itself first, with its path; without recursion, however deep."""
    stack = [(path, schema)]
    while stack:
        path, schema = stack.pop()
        if isinstance(schema, dict):
            yield path, schema
            stack += [(f"{path}.{key}", schema[key]) for key in NESTED if key in schema]
            for key in LISTED:
                listed = schema.get(key)
                stack += [
                    (f"{path}.{key}[{at}]", each) for at, each in enumerate(listed if isinstance(listed, list) else [])
                ]
            for key in NAMED:
                named = schema.get(key)
                stack += [
                    (f"{path}.{key}.{name}", each) for name, each in (named.items() if isinstance(named, dict) else [])
                ]


def tag(value: Any, key: str = "type") -> str | None:
    """The string under this key of an object, if there is one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None
