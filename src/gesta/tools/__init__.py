"""A tool that a person carries out, and the reader of the docstrings of tools."""

ORDER = ("docstring", "person")
