"""What Langroid's users catch."""

from gesta.errors import GestaError


class InfiniteLoopException(GestaError):
    """A task went round in a circle."""


class XMLException(GestaError):
    """A tool message in XML cannot be read."""
