"""Reads the docstring of a tool: a description for the model, and a text for each parameter.

The three usual styles (Google, NumPy, Sphinx) are tried, and the one that finds the most parameters is used. Only the
parameters are removed from the description, because the model should read the sections on returned values and warnings.
If no parameter is found, or a docstring cannot be parsed, the text is returned unchanged.
"""

import re
import warnings
from typing import Any

import griffe

STYLES = (griffe.parse_google, griffe.parse_numpy, griffe.parse_sphinx)
CROWDED = re.compile(r"(?<=\S)\n(?=[A-Z][A-Za-z ]*:[ \t]*\n)")
"""Matches the line end above a heading without an empty line before it. The parser griffe takes such a heading for
text."""
WRAPPED = re.compile(r"\s*\n\s*(?![\s*-])")
"""Matches a line end inside a paragraph, where the next line continues it and is not an item of a list."""


def read(text: str) -> tuple[str, dict[str, str]]:
    """Return the description of the tool in a docstring, and the texts about parameters, by the parameters' names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # griffe compiles texts in the place of types, which may warn
        return _read(text)


def _read(text: str) -> tuple[str, dict[str, str]]:
    best: tuple[str, dict[str, str]] = text, {}
    for parse in STYLES:
        try:
            sections: list[Any] = [*parse(griffe.Docstring(CROWDED.sub("\n\n", text)), warnings=False)]
            texts = _texts(sections)
            if len(texts) > len(best[1]):
                best = "\n\n".join(filter(None, map(_shown, sections))), texts
        except Exception:  # noqa: BLE001, S112 - an odd docstring must not prevent the tool
            continue
    return best


def _texts(sections: list[Any]) -> dict[str, str]:
    items = [item for each in sections if each.kind.value in ("parameters", "other parameters") for item in each.value]
    return {item.name: WRAPPED.sub(" ", item.description.strip()) for item in items if item.description.strip()}


def _shown(section: Any) -> str:
    """Return a section of a docstring as plain text; an empty text for a section of parameters."""
    match section.kind.value:
        case "text":
            return str(section.value).strip()
        case "parameters" | "other parameters":
            return ""
        case "admonition" | "deprecated":
            parts = [section.value.description]
        case "examples":
            parts = [text for _, text in section.value]
        case _:
            items = [(getattr(item, "name", ""), item.annotation, item.description) for item in section.value]
            parts = [": ".join(str(fact) for fact in item if fact) for item in items]
    lines = [f"    {line}".rstrip() for part in parts for line in part.strip().splitlines()]
    return "\n".join([f"{section.title or section.kind.value.capitalize()}:", *lines])
