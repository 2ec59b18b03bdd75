"""A message before and after the hooks of a history formatter: a view of entries, and a dict for a provider.

Of the dict a provider sees only a part: what is not of the wire format stays beside it.
Keywords are its users' own words, so no signature can list them; the name and its behaviour are known elsewhere.
"""

import base64
import json
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from msgspec import Struct

from gesta.kinds import Part
from gesta.message import Role
from gesta.prompt.formatter import numbers_in_hex

INLINED = 5000
"""Characters of a text file that are shown; a longer one is named."""
IMAGE_BYTES = 5_000_000
"""Size of an image that is still sent along; a larger one is named."""


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One message of a run, as hooks see it."""

    role: Role
    content: Any = None
    thought: str | None = None
    """What the model wrote before it acted."""
    action: str | None = None
    """The tool that is called; of a tool message, the one that answers."""
    args: str | None = None
    """JSON object, as text."""
    code: str | None = None
    final_answer: str | None = None
    """The final answer. Empty text is an answer; `None` is not."""
    files: tuple[str | Part, ...] | list[str | Part] | None = None
    task_successful: bool | None = None
    tool_call_id: str | None = None
    """Unique in the run and taken back by every provider."""
    own_id: str | None = None
    """The provider's own id, where that is another."""
    state: dict[str, Any] | None = None
    """State that earlier messages left, for hooks to change; `None` for a message that stands alone."""

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("own_id", "state")}


class LLMMessage(dict[str, Any]):
    """A message whose keys are those of the wire format; every other field is metadata.

    Metadata is reached by `[]`, `get`, `in` and attribute, and shown by `repr`. Iteration, `len`, `dict()`, `**`,
    `keys`, `values`, `items` and JSON know only the message. Messages are equal when both parts are; to a plain dict,
    when the message is.
    """

    __slots__ = ("__more",)
    __hash__ = None
    _ALLOWED_KEYS: ClassVar[frozenset[str]] = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Make room for metadata before anything can ask for it."""
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

    def __or__(self, other: Any) -> "LLMMessage":  # type: ignore[override]  # whatever is merged in, it stays one
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

    def __ior__(self, other: Any) -> Self:  # type: ignore[override]  # pairs too, as dict takes them
        self.update(other)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self) | self.__more})"

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made, (dict(self), self.__more)

    @classmethod
    def _made(cls, message: dict[str, Any], metadata: dict[str, Any]) -> Self:
        made = cls.__new__(cls)
        dict.update(made, message)
        made.__more.update(metadata)  # noqa: SLF001 - of its own class
        return made

    def copy(self) -> Self:
        """Copy both parts, each one level deep."""
        return self._made(dict(self), self.__more)

    __copy__ = copy

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field of either part."""
        try:
            return self[key]
        except KeyError:
            return default

    def pop(self, key: str, *default: Any) -> Any:
        """Remove and return a field of either part. Raises KeyError if there is no such field and no default."""
        return super().pop(key, *default) if key in self._ALLOWED_KEYS else self.__more.pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return a field of either part. A missing field is set first."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all fields."""
        super().clear()
        self.__more.clear()

    def update(self, other: Any = (), /, **kwargs: Any) -> None:
        """Set fields from a mapping or from pairs, then from keywords; of another LLMMessage, from both parts."""
        found = dict(other.items() if isinstance(other, Mapping) else other)
        if isinstance(other, LLMMessage):
            found |= other.__more  # noqa: SLF001 - of its own class
        for key, value in (found | kwargs).items():
            self[key] = value


def make_user_message(content: Any, files: str | Part | Iterable[str | Part] | None = None) -> list[LLMMessage]:
    """Make the one message that holds a text and files as parts; a list of one, as its callers know it.

    Nothing is fetched: an address is an image if its path ends like one. Local images are sent along, short UTF-8
    text is shown, and what is longer, binary, gone or elsewhere is named. A file on record stands as `blob:NAME`.

    Args:
        content: text, or parts as they are sent.
        files: paths, addresses, or parts of an entry.
    """
    parts = (
        list(content)
        if isinstance(content, list | tuple)
        else [_text("" if content is None else str(numbers_in_hex(content)))]
    )
    named = [files] if isinstance(files, str | Part) else list(files or ())
    parts += [_of_record(file) if isinstance(file, Part) else _of_name(str(file)) for file in named]
    return [LLMMessage(role="user", content=parts or [_text("")])]


def blob_of(part: Any) -> str | None:
    """Name the blob of a part that `make_user_message` made of a file on record."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith("blob:"):
            return url.removeprefix("blob:")
        case {"type": "file", "file": {"file_id": str(name)}} if name.startswith("blob:"):
            return name.removeprefix("blob:")
    return None


def text_of(content: Any) -> str:
    """Write the content of a message as text: its text parts, and a note for any other."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        return str(content)
    return "\n".join(
        str(part.get("text") or "") if isinstance(part, Mapping) and part.get("type") == "text" else note_of(part)
        for part in content
    )


def parts_of(content: Sequence[Any], files: Any) -> tuple[str, tuple[Part, ...]]:
    """Return the text of a user's message, and its other parts as they are on record."""
    known = {file.blob: file for file in files or () if isinstance(file, Part)}
    texts: list[str] = []
    parts: list[Part] = []
    for part in content:
        blob = blob_of(part)
        if blob is not None:
            kind = "image" if part["type"] == "image_url" else "file"
            parts.append(known.get(blob) or Part(type=cast("Any", kind), blob=blob))
        elif not texts and isinstance(part, Mapping) and part.get("type") == "text":
            texts.append(str(part.get("text") or ""))
        else:
            parts.append(Part(type="text", text=text_of([part]) if isinstance(part, Mapping) else note_of(part)))
    return "".join(texts), tuple(parts)


def object_of(text: Any) -> dict[str, Any] | None:
    """Return the JSON object in a text; `None` if it holds something else."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None
    return dict(found) if isinstance(found, Mapping) else None


def note_of(part: Any) -> str:
    """Name a part that cannot be shown where it would stand."""
    match part:
        case str():
            return part
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return f"[image {url if len(url) <= 200 else url[:40] + '…'}]"
        case {"type": str(kind)}:
            return f"[{kind}]"
    return f"[a part of type {type(part).__name__}]"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _of_record(part: Part) -> dict[str, Any]:
    if part.type == "text" or part.blob is None:
        return _text(part.text or f"[{part.type} {part.name or 'without a name'}]")
    url = f"blob:{part.blob}"
    return _image(url) if part.type == "image" else {"type": "file", "file": {"file_id": url}}


def _of_name(name: str) -> dict[str, Any]:
    path = name.partition("?")[0].partition("#")[0] if "://" in name else name
    media_type = mimetypes.guess_type(path)[0] or ""
    image = media_type.startswith("image/")
    if "://" in name or name.startswith("data:"):
        return _image(name) if image or name.startswith("data:image/") else _text(f"[file at {name}]")
    try:
        size = Path(name).stat().st_size
        if size > (IMAGE_BYTES if image else 4 * INLINED):
            return _text(f"[file {name}, {size} bytes]")
        data = Path(name).read_bytes()
    except (OSError, ValueError) as error:
        return _text(f"[file {name}: it cannot be read, {type(error).__name__}]")
    if image:
        return _image(f"data:{media_type};base64,{base64.b64encode(data).decode()}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _text(f"[file {name}, {size} bytes]")
    return _text(f"{name}:\n{text}" if len(text) <= INLINED else f"[file {name}, {size} bytes]")
