"""A docstring gives a description and a text for each parameter, in whichever of the usual three styles it is written.

Google, NumPy and Sphinx style are told apart by what stands there. Nothing raises: what cannot be read is description.
"""

import logging

import griffe

QUIET = logging.getLogger("griffe")


def read(text: str) -> tuple[str, dict[str, str]]:
    """Give the description, and the text of each parameter by its name."""
    was, QUIET.disabled = QUIET.disabled, True
    try:
        sections = griffe.Docstring(text).parse("auto")
    except Exception:  # noqa: BLE001 - the parser's own trouble with odd text must not keep a tool from being offered
        return text, {}
    finally:
        QUIET.disabled = was
    kept = {griffe.DocstringSectionKind.text: [], griffe.DocstringSectionKind.parameters: []}  # type: ignore[var-annotated]
    for section in sections:
        kept.setdefault(section.kind, []).append(section.value)
    description = "\n\n".join(part.strip() for part in kept[griffe.DocstringSectionKind.text])
    parameters = {
        item.name: " ".join(item.description.split())
        for values in kept[griffe.DocstringSectionKind.parameters]
        for item in values
    }
    return description or text, parameters
