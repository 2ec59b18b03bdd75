"""Repairs arguments of tool calls that are nearly JSON. The stored call is marked as repaired."""

from typing import Any

import json_repair

LONGEST = 16_000
"""Greatest number of characters of a text that is repaired. At worst, the time grows with the square of the length."""


def repair(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text was probably meant to be; `None` if that is not clear. Never raises.

    A text that was cut off is not repaired, because its rest is unknown. A text of more than `LONGEST` characters is
    not repaired either.
    """
    if len(text) > LONGEST or "{" not in text or not text.rstrip("`; \t\r\n").endswith("}"):
        return None
    try:
        value = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, TypeError):
        return None
    return value if isinstance(value, dict) and value else None
