"""Damages bytes, texts and JSON values in random ways."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

DEEP = 100_000
CHUNKS = (
    *(b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\r", b"\n\n", b"\\ud800"),
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"NaN", b"-Infinity", b"1e999", b"-", b"0" * 40),
    *(b'{"$blob":', b'{"$int":"0x1"}', b'{"$dict":1}', b"$", b"\\u0000", b"data: ", b"[DONE]", b"\x1b[2J"),
    *(b"9" * 400, b"9" * 5000, b"A" * 3000, b"[" * 3000, b'{"a":' * 3000, b"%s%n", b"../" * 9, b"\xe2\x80\xae"),
)
"""Pieces of bytes that often cause errors in readers."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**400, 0.5, -0.0, 1e308, 5e-324),
    *(float("nan"), float("inf"), "", " ", "0", "-1", "\0", "\ud800", "\U0001f600", "x" * 2000, "\x1b[31m", "\u202e"),
    *([], [[]], [None], {}, {"": None}, {"$dict": {}}, {"$blob": {}}, {"$py": 1}, {"$int": "zz"}, {"$float": []}),
    *({"$int": "0x" + "f" * 5000}, {"$int": "0x" + "f" * 400}, {"$int": "-0x1" + "0" * 300}, {"$float": "nan"}),
    *(
        {"$float": "-inf"},
        {"$text": "7aCA"},
        {"$text": "AA=="},
        {"$bytes": "AP8="},
        {"$tuple": [1]},
        {"$set": [1, "a"]},
    ),
    *({"$json": "[[1"}, {"$secret": "KEY"}, {"$items": [[1, 2], [[], 3]]}, {"$cycle": True}, {"$py": ["T", "T()"]}),
    *("2026-01-01T00:00:00Z", "9999-12-31T23:59:59.999999-14:00", "0001-01-01T00:00:00+14:00", "NaN", "1e999"),
)
"""Values to put in places where other values are expected."""


def spoilt(lot: Random, data: bytes) -> bytes:
    """Return data with its bytes changed in some places."""
    for _ in range(lot.choice((1, 1, 1, 2, 4, 16))):
        place, size = lot.randrange(len(data) + 1), lot.choice((1, 1, 2, 8, 64, 1000))
        data = lot.choice(WAYS)(lot, data, place, size)
    return data


def _flipped(lot: Random, data: bytes, place: int, size: int) -> bytes:
    changed = bytes(byte ^ 1 << lot.randrange(8) for byte in data[place : place + min(size, 8)])
    return data[:place] + changed + data[place + len(changed) :]


def _noise(lot: Random, data: bytes, place: int, size: int) -> bytes:
    return data[:place] + lot.randbytes(min(size, 64)) + data[place + min(size, 64) :]


WAYS: tuple[Callable[[Random, bytes, int, int], bytes], ...] = (
    _flipped,
    _noise,
    lambda _, data, place, size: data[:place] + data[place + size :],
    lambda _, data, place, size: data[: place + size] + data[place:],
    lambda lot, data, place, _: data[:place] + lot.choice(CHUNKS) + data[place:],
    lambda lot, data, place, size: data[:place] + lot.choice(CHUNKS) + data[place + size :],
    lambda _, data, place, __: data[:place],
)


def cut(lot: Random, data: bytes) -> list[bytes]:
    """Return data cut into pieces at random places."""
    places = sorted(lot.randrange(len(data) + 1) for _ in range(lot.choice((0, 1, 2, 5, 20))))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def odd(lot: Random) -> Any:
    """Return a random odd value; rarely one that is nested deeply."""
    if lot.random() < 0.02:
        value: Any = None
        for _ in range(lot.choice((70, 250))):
            value = [value] if lot.random() < 0.5 else {"a": value}
        return value
    return lot.choice(ODD)


def twisted(lot: Random, value: Any) -> Any:
    """Return a JSON value changed in some places: values of another type, or members removed, doubled or renamed."""
    for _ in range(lot.choice((1, 1, 1, 2, 3))):
        value = _twisted(lot, value)
    return value


def _twisted(lot: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and lot.random() < 0.85:
        key = lot.choice(list(value))
        left = {name: each for name, each in value.items() if name != key}
        way = lot.random()
        if way < 0.1:
            return left
        if way < 0.15:
            return left | {lot.choice(("", "$blob", "kind", "\ud800", key + " ")): value[key]}
        return {name: _twisted(lot, each) if name == key else each for name, each in value.items()}
    if isinstance(value, list) and value and lot.random() < 0.85:
        place, way = lot.randrange(len(value)), lot.random()
        if way < 0.1:
            return value[:place] + value[place + 1 :]
        if way < 0.2:
            return [*value[:place], value[place], *value[place:]]
        return [_twisted(lot, each) if number == place else each for number, each in enumerate(value)]
    if isinstance(value, str) and value and lot.random() < 0.3:
        return spoilt(lot, value.encode("utf-8", "replace")).decode("utf-8", lot.choice(("replace", "surrogateescape")))
    return odd(lot)


def written(lot: Random, value: Any) -> bytes:
    """Return a value as JSON in one of the styles in which others write it; rarely nested too deeply."""
    text = json.dumps(value, ensure_ascii=lot.random() < 0.5)
    data = text.encode("utf-8", "surrogatepass")
    if lot.random() < 0.05:
        deep = lot.choice((b"[", b'{"a":')) * DEEP
        place = data.find(b":", lot.randrange(len(data) + 1)) + 1
        return data[:place] + deep + data[place:]
    return data


def hostile(lot: Random, value: Any) -> bytes:
    """Return a JSON value damaged in its members, in its bytes, or in both."""
    data = written(lot, twisted(lot, value) if lot.random() < 0.75 else value)
    return spoilt(lot, data) if lot.random() < 0.35 else data
