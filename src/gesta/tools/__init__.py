"""A tool that a person carries out, and a parser for the docstrings of tools."""

ORDER = ("docstring", "person")
