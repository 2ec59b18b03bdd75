"""Reads times as people type them: an age such as `30d`, a day such as `2026-05-31`, or a time of a day."""

import re
from datetime import UTC, datetime, timedelta

from gesta.cli.talk import Stop
from gesta.entry import utc_text

UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def point(text: str | None, option: str) -> str | None:
    """Convert a date, a time or an age to a time in UTC, such as `2026-05-31T00:00:00.000000Z`, and return it.

    Args:
        text: what was typed, such as `12h` for 12 hours ago; for `None`, `None` is returned.
        option: name of the option, for the error.

    Raises Stop for a text that is not a time.
    """
    if text is None:
        return None
    now = datetime.now(UTC)
    try:
        if age := re.fullmatch(r"(\d{1,6})([mhdw])", text.strip()):
            return utc_text(now - timedelta(**{UNITS[age[2]]: int(age[1])}))
        found = datetime.fromisoformat(text.strip())
        return utc_text(found if found.tzinfo is not None else found.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise Stop(
            f"{option} {text!r} is not a time. Write an age (90m, 12h, 30d, 4w) or a day in UTC (2026-11-21)."
        ) from None
