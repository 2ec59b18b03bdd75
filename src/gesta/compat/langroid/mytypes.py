"""Names of `langroid.mytypes`."""

from gesta.compat.langroid.entities import Entity

__all__ = ["Entity"]
