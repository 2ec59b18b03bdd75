"""The names of Langroid's module `langroid.mytypes`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.entities import Entity

__all__ = ["Entity"]
