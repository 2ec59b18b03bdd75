"""Makers of tools, and what is read about them."""

ORDER = ("docstring", "person")
