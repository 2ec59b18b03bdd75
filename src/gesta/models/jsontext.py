r"""Lenient JSON: writes every value as valid JSON, and reads JSON that strict readers refuse.

A record may hold values that JSON lacks (infinite numbers, half a surrogate pair, objects), and providers send JSON
that strict readers refuse (`\ud800`, raw line ends inside strings, broken UTF-8). Neither may stop an agent.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

ENCODER = msgspec.json.Encoder()
DECODER = msgspec.json.Decoder()
SURROGATE = re.compile("[\ud800-\udfff]")
DEPTH = 100
"""Greatest number of levels that are written of a value that cannot be encoded directly."""


def clean(text: str) -> str:
    """Return a text that has a UTF-8 form: surrogate pairs are joined, and each lone surrogate becomes U+FFFD."""
    if SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def paired(text: str) -> str:
    """Return a text with the surrogate pairs joined that came in two pieces. Lone surrogates stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def compact(value: Any) -> bytes:
    """Return a value as compact JSON, with members in their order. Never raises: any value gives valid JSON.

    Values that JSON lacks become text: `nan`, `inf`, an object's `str`. Lone surrogates become U+FFFD.
    """
    try:
        data = ENCODER.encode(value)
        if b"null" not in data:  # msgspec writes nan as null
            return data
    except Exception:  # noqa: BLE001, S110 - values may run code of their own; below every one of them is caught
        pass
    return ENCODER.encode(_plain(value, ()))


def exact(value: Any) -> bytes:
    """Return JSON as `compact` does, but with escapes for lone surrogates, so that decoding returns the same text."""
    try:
        return ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=_text).encode()
    except Exception:  # noqa: BLE001 - as above
        return compact(value)


def read(data: bytes) -> Any:
    """Return the value of JSON bytes, also of JSON that strict readers refuse.

    Raises:
        ValueError: no reader can read them.
    """
    try:
        return DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8", "replace").lstrip("\ufeff"), strict=False)
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc


def read_all(texts: Sequence[bytes]) -> list[Any]:
    """Return the values of several JSON texts, each as `read` returns it. Ordinary texts are decoded in one pass.

    Raises ValueError.
    """
    try:
        found = DECODER.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = ()
    return found if len(found) == len(texts) else [read(text) for text in texts]


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    """Return a value made of dict, list, str, int, float, bool and `None` only."""
    if isinstance(value, str):
        return clean(str.__str__(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if id(value) in above or len(above) == DEPTH:
        return "…"
    inner = (*above, id(value))
    if isinstance(value, Mapping):
        return {clean(_text(key)): _plain(item, inner) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, inner) for item in value]
    return _leaf(value, inner)


def _leaf(value: Any, inner: tuple[int, ...]) -> Any:
    try:
        built = msgspec.to_builtins(value)  # dates, bytes, enums, structs, dataclasses
        ENCODER.encode(built)
    except Exception:  # noqa: BLE001 - whatever is left is written as its text
        return clean(_text(value))
    return built if isinstance(built, str | int) else _plain(built, inner)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an object that cannot say what it is
        return type(value).__name__
