r"""Lenient JSON: writes every value as valid JSON, and reads JSON that strict readers refuse.

A recorded value may be one that JSON lacks (an infinite number, half a surrogate pair, an object). Providers send JSON
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
"""Greatest depth to which a value is written if the JSON encoder refuses it. Deeper levels become `…`."""


def clean(text: str) -> str:
    """Return the text in a form that UTF-8 can encode: surrogate pairs are joined, a lone surrogate becomes U+FFFD."""
    if SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def paired(text: str) -> str:
    """Return the text with each pair of surrogates joined into one character. Lone surrogates are kept."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def compact(value: Any) -> bytes:
    """Return a value as compact JSON, with the members in their order. The function never raises.

    Values that JSON lacks become text: `nan`, `inf`, the `str` of an object. Lone surrogates become U+FFFD.
    """
    try:
        data = ENCODER.encode(value)
        if b"null" not in data:  # msgspec writes nan as null
            return data
    except Exception:  # noqa: BLE001, S110 - a value may run its own code and raise; it is written below
        pass
    return ENCODER.encode(_plain(value, ()))


def exact(value: Any) -> bytes:
    """Return compact JSON in which lone surrogates are escaped, so that decoding returns the same text.

    The function never raises. Other values that JSON lacks become text, as in `compact`.
    """
    try:
        return ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=_text).encode()
    except Exception:  # noqa: BLE001 - as above
        return compact(value)


def read(data: bytes) -> Any:
    """Return the value that JSON bytes hold, even if a strict reader would refuse them.

    Raises:
        ValueError: the bytes are not JSON that can be read.
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
    """Return the values of several JSON texts, in their order.

    Raises:
        ValueError: one of the texts cannot be read.
    """
    try:
        found = DECODER.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = ()
    return found if len(found) == len(texts) else [read(text) for text in texts]


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    """Return a copy of a value, made only of dict, list, str, int, float, bool and `None`.

    Args:
        above: ids of the objects that contain the value, to find cycles. A cycle becomes `…`.
    """
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
    except Exception:  # noqa: BLE001 - the object's own `__str__` failed
        return type(value).__name__
