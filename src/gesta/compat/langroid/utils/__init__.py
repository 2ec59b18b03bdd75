"""Names of `langroid.utils`."""

from gesta.compat.langroid.utils import constants

ORDER = ("constants",)
"""Each file may import those before it."""

__all__ = ["constants"]
