"""Functions that make and read the content of messages: texts and files as parts, and tool arguments as JSON.

A record, the store of all runs, keeps files as blobs: large values with a name.
"""

import base64
import json
import mimetypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.kinds import Part
from gesta.models.jsontext import compact
from gesta.prompt import numbers_in_hex

INLINED = 5000
"""Length, in characters, of the longest text file whose content is shown. Of a longer file, only the name is shown."""
IMAGE_BYTES = 5_000_000
"""Size, in bytes, of the largest image that is sent. Of a larger image, only the name is sent."""
CALL_ID: ContextVar[str | None] = ContextVar("CALL_ID", default=None)
"""The id for the call of the message that is being formatted; `None` while no message is."""
T = TypeVar("T")


def with_id(call_id: str, function: Callable[..., T], *args: Any) -> T:
    """Call a function, during which `CALL_ID` is `call_id`. Return its result."""
    token = CALL_ID.set(call_id)
    try:
        return function(*args)
    finally:
        CALL_ID.reset(token)


def make_user_message(content: Any, files: str | Part | Iterable[str | Part] | None = None) -> list[LLMMessage]:
    """Return a list with one user message, made of a text and files.

    Nothing is fetched. An address that ends like the name of an image becomes an image; any other address is shown as
    text. Of local files, images are sent and short UTF-8 texts are shown. Of any other file, only the name is shown. A
    file that is stored in the record is written as `blob:NAME`.

    Args:
        content: a text, or a list of parts in the form that providers accept.
        files: paths, addresses, or file parts as a record stores them.
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
    """Return the blob name in a part that `make_user_message` made from a recorded file; `None` for other parts."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith("blob:"):
            return url.removeprefix("blob:")
        case {"type": "file", "file": {"file_id": str(name)}} if name.startswith("blob:"):
            return name.removeprefix("blob:")
    return None


def text_of(content: Any) -> str:
    """Return the content of a message as text: its text parts, and a short note in place of each other part."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        return str(content)
    return "\n".join(
        str(part.get("text") or "") if isinstance(part, Mapping) and part.get("type") == "text" else note_of(part)
        for part in content
    )


def parts_of(content: Sequence[Any], files: Any) -> tuple[str, tuple[Part, ...]]:
    """Return the first text of a user message, and its other parts as `Part` objects that a record can store.

    Args:
        content: the parts of the message, as `make_user_message` makes them.
        files: the files of the message. A file that is stored already (a blob) is returned unchanged.
    """
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
    """Return the dict that a JSON text contains; `None` if the text is not a JSON object. A dict is copied."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None
    return dict(found) if isinstance(found, Mapping) else None


def args_text(args: Mapping[str, Any]) -> str:
    """Return arguments as the text of a JSON object. Values that JSON lacks, such as NaN, become texts."""
    try:
        text = json.dumps(args, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return compact(args).decode()
    return text


def sound_args(text: Any) -> str:
    """Return the text of a valid JSON object: `text` itself if it is valid, else a corrected text.

    Values that JSON lacks, such as NaN, become texts. A text that is not a JSON object becomes `{}`.
    """
    try:
        if isinstance(text, str) and text.encode() and isinstance(json.loads(text, parse_constant=_refuse), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return args_text(object_of(text) or {})


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def note_of(part: Any) -> str:
    """Return a short text to show in place of a part that is not text."""
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
        return _image(name) if image or name.startswith("data:image/") else _text(f"File URL: {name}")
    try:
        size = Path(name).stat().st_size
        if size > (IMAGE_BYTES if image else 4 * INLINED):
            return _text(f"Input file: {name} ({size} bytes, not shown)")
        data = Path(name).read_bytes()
    except (OSError, ValueError) as error:
        return _text(f"Input file: {name} (it cannot be read: {type(error).__name__})")
    if image:
        return _image(f"data:{media_type};base64,{base64.b64encode(data).decode()}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _text(f"Input file: {name}")
    if len(text) > INLINED:
        return _text(f"Input file: {name} ({size} bytes, not shown)")
    return _text(f"File {name} content:\n{text}")
