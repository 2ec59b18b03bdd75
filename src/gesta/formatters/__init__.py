"""Makers of the spine's `Formatter`."""

ORDER = ("tool_calls",)
