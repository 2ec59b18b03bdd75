"""The names of Langroid's package `langroid.utils`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.utils import constants

ORDER = ("constants",)
"""Files in reading order: each imports only files before it."""

__all__ = ["constants"]
