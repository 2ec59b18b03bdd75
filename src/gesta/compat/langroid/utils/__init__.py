"""Names of `langroid.utils`."""

from gesta.compat.langroid.utils import constants

ORDER = ("constants",)
"""Files in reading order: each imports only files before it."""

__all__ = ["constants"]
