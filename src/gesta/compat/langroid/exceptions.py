"""The exceptions that programs written for Langroid catch."""

from gesta.errors import BadArguments, GestaError


class InfiniteLoopException(GestaError):
    """The messages of a task repeat without end."""


class XMLException(BadArguments):
    """A tool message in XML that a program parses does not fit its class; a model that wrote it is told the problem."""
