"""A tool whose work a person does, and a parser for the docstrings of tools."""

ORDER = ("docstring", "person")
