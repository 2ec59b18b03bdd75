"""Langroid's exceptions, for programs that catch them."""

from gesta.errors import BadArguments, GestaError


class InfiniteLoopException(GestaError):
    """A task ended because its messages repeat without end."""


class XMLException(BadArguments):
    """A tool message in XML does not fit its class. Raised only when a program itself parses the XML."""
