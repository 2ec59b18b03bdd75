"""What Langroid's users catch."""

from gesta.errors import BadArguments, GestaError


class InfiniteLoopException(GestaError):
    """A task went round in a circle."""


class XMLException(BadArguments):
    """A tool message in XML does not fit its class; of what a model wrote, the model is told so instead."""
