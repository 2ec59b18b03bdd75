"""A chat message as a dict, with metadata that is never sent to a provider.

The name and the behaviour are KodeAgent's. Programs choose the keyword arguments, so no signature can list them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self


class LLMMessage(dict[str, Any]):
    """A dict with the fields of a chat message (`role`, `content`, …). Every other field is metadata.

    `[]`, `get`, `in` and attributes find fields and metadata; `repr` shows all. Iteration, `len`, `dict()`, `**`,
    `keys`, `values`, `items` and JSON see only the message. Two messages are equal if their fields and their metadata
    are equal. To equal a plain dict, a message needs the same fields; its metadata is not compared.
    """

    __slots__ = ("__more",)
    __hash__ = None
    _ALLOWED_KEYS: ClassVar[frozenset[str]] = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Make the dict for the metadata, so that other methods can use it even before `__init__` runs."""
        made = super().__new__(cls)
        object.__setattr__(made, "_LLMMessage__more", {})
        return made

    def __init__(self, /, **kwargs: Any) -> None:
        super().__init__()
        self.update(kwargs)

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key) if key in self._ALLOWED_KEYS else self.__more[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self._ALLOWED_KEYS:
            super().__setitem__(key, value)
        else:
            self.__more[key] = value

    def __delitem__(self, key: str) -> None:
        if key in self._ALLOWED_KEYS:
            super().__delitem__(key)
        else:
            del self.__more[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.__more

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}", name=name, obj=self)
        del self[name]

    def __eq__(self, other: object) -> bool:
        same = super().__eq__(other)
        return same is True and self.__more == other.__more if isinstance(other, LLMMessage) else same

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Any) -> "LLMMessage":  # type: ignore[override]  # the result is an LLMMessage, too
        if not isinstance(other, Mapping):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> "LLMMessage":  # type: ignore[override]  # as above
        if not isinstance(other, Mapping):
            return NotImplemented
        made = self._made({}, {})
        made.update(other)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> Self:  # type: ignore[override]  # accepts pairs, as dict does
        self.update(other)
        return self

    def __repr__(self) -> str:
        more = sorted(self.__more.items(), key=lambda item: str(item[0]).startswith("_"))
        return f"{type(self).__name__}({dict(self) | dict(more)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made, (dict(self), self.__more)

    @classmethod
    def _made(cls, message: dict[str, Any], metadata: dict[str, Any]) -> Self:
        made = cls.__new__(cls)
        dict.update(made, message)
        made.__more.update(metadata)  # noqa: SLF001 - of its own class
        return made

    def copy(self) -> Self:
        """Return a shallow copy of the message and of its metadata."""
        return self._made(dict(self), self.__more)

    __copy__ = copy

    def get(self, key: str, default: Any = None) -> Any:
        """Return the field or metadata called `key`; the default if the message has neither."""
        try:
            return self[key]
        except KeyError:
            return default

    def pop(self, key: str, *default: Any) -> Any:
        """Remove and return the field or metadata called `key`, else the default. Raise KeyError without a default."""
        return super().pop(key, *default) if key in self._ALLOWED_KEYS else self.__more.pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the field or metadata called `key`. If the message has neither, first set it to the default."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all fields and all metadata."""
        super().clear()
        self.__more.clear()

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set fields and metadata from a mapping or pairs, then from keywords. An LLMMessage's metadata is included."""
        if len(args) > 1:
            raise TypeError(f"update expected at most 1 arguments, got {len(args)}")
        other = args[0] if args else ()
        found = dict(other.items() if isinstance(other, Mapping) else other)
        if isinstance(other, LLMMessage):
            found |= other.__more  # noqa: SLF001 - of its own class
        for key, value in (found | kwargs).items():
            self[key] = value
