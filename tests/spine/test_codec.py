"""Whatever an agent hands in is written, read back as the agent itself got it back, and bound by the digests."""

import dataclasses
import enum
import json
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import tried

from gesta.codec.blobs import Blobs
from gesta.codec.chain import link, seal, verify
from gesta.codec.rows import (
    LARGE,
    PythonValue,
    Secret,
    _read,
    blob_names,
    canonical,
    decode_content,
    digest_of,
    encode_content,
    from_row,
    to_row,
)
from gesta.codec.upcasts import LIFTED
from gesta.entry import GENESIS, VERSION, Entry, Row
from gesta.errors import BrokenRecord, NewerRecord
from gesta.kinds import (
    AssistantContent,
    AttemptContent,
    BeginContent,
    ChatCompletionContent,
    CompactionContent,
    Content,
    DecisionContent,
    EdgeContent,
    EndContent,
    Error,
    FaultContent,
    Hit,
    KeyValueContent,
    Opened,
    Part,
    QuestionContent,
    RetrievalContent,
    SystemContent,
    TimerContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.text.objects import MAX_DEPTH

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
SALT = bytes(range(16))
OPEN, CLOSE = '{"kind":"key-value","key":"k","value":', "}"


def stored(value: Any) -> str:
    """What stands in the text for a value, without blobs."""
    text = encode_content(KeyValueContent(key="k", value=value))
    assert text.startswith(OPEN)
    assert text.endswith(CLOSE)
    return text[len(OPEN) : -len(CLOSE)]


def read_back(value: Any) -> Any:
    """A value after it went through stored text."""
    content = decode_content(f"{OPEN}{stored(value)}{CLOSE}", {})
    assert isinstance(content, KeyValueContent)
    return content.value


def entry(content: Content, **more: Any) -> Entry:
    return msgspec.structs.replace(Entry(run="r", seq=1, at=AT, span=1, content=content), **more)


def same(one: Any, other: Any) -> bool:
    """Equal in value and type; NaN, which is not equal to itself, by its text."""
    return type(one) is type(other) and (one == other or repr(one) == repr(other))


def write(content: Content, **more: Any) -> tuple[Entry, Row, dict[str, bytes]]:
    """Write an entry and read it again: what the writer got back is what the reader gets."""
    keeper = Blobs()
    stamped, row = to_row(entry(content, **more), GENESIS, SALT, keeper.keep)
    blobs = {name: data for name, _, data in keeper.take()}
    assert verify(row, GENESIS)
    needed = {name: blobs[name] for name in blob_names(row)}
    again = from_row(row, needed)
    assert same(again, stamped)
    return stamped, row, blobs


class Colour(enum.Enum):
    RED = "red"
    MANY = ["red", "blue"]  # noqa: RUF012  # unhashable on purpose


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Name(str):
    """A text that lies about itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "a lie"


class Whole(int):
    def __int__(self) -> int:
        return 99


class Real(float):
    def __float__(self) -> float:
        return 99.0


class Items(list):
    def __iter__(self):
        raise RuntimeError


class Table(dict):
    def items(self):
        raise RuntimeError

    def __iter__(self):
        raise RuntimeError


class Raw(bytes):
    def __bytes__(self) -> bytes:
        return b"a lie"


class Moment(datetime):
    def isoformat(self, *_: Any, **__: Any) -> str:
        return "a lie"


Point = namedtuple("Point", "x y")  # noqa: PYI024


@dataclasses.dataclass
class Data:
    a: int


class Record(msgspec.Struct):
    a: int
    b: Any = None


class Tagged(msgspec.Struct, tag="t", tag_field="$kind"):
    pass


SELF: list[Any] = []
SELF.append(SELF)
SHARED = [1]
LONG = 7**7000

TABLE: list[tuple[Any, ...]] = [
    ("None", None, "null", None),
    ("bool", [True, False], "[true,false]", [True, False]),
    ("int", [0, -5, -(2**63), 2**64 - 1], "[0,-5,-9223372036854775808,18446744073709551615]", ...),
    ("int beyond 64 bits", 2**64, '{"$int":"0x10000000000000000"}', ...),
    ("int below 64 bits", -(2**63) - 1, '{"$int":"-0x8000000000000001"}', ...),
    ("float", [0.1, 1.0, 5e-324, 1.7976931348623157e308], "[0.1,1.0,5e-324,1.7976931348623157e308]", ...),
    ("minus zero", -0.0, "-0.0", ...),
    ("not a number", math.nan, '{"$float":"nan"}', ...),
    ("infinity", [math.inf, -math.inf], '[{"$float":"inf"},{"$float":"-inf"}]', ...),
    ("str", 'a"\\/é\u2028𝄞\t\x1b', '"a\\"\\\\/é\u2028𝄞\\t\\u001b"', ...),
    ("empty str", "", '""', ...),
    ("str with U+0000", "a\0", '{"$text":"YQA="}', ...),
    ("str with a lone surrogate", "\ud800", '{"$text":"7aCA"}', ...),
    ("str that spells a NUL", "\\u0000", '"\\\\u0000"', ...),
    ("str that starts with $", ["$5", '{"$x'], '["$5","{\\"$x"]', ...),
    ("bytes", b"\xff\0", '{"$bytes":"/wA="}', ...),
    ("bytearray", bytearray(b"a"), '{"$bytes":"YQ=="}', b"a"),
    ("memoryview", memoryview(b"a"), '{"$bytes":"YQ=="}', b"a"),
    ("list", [1, [], ["a"]], '[1,[],["a"]]', ...),
    ("tuple", (1, ()), '{"$tuple":[1,{"$tuple":[]}]}', ...),
    ("named tuple", Point(1, 2), '{"$tuple":[1,2]}', (1, 2)),
    ("set", {"b", "a", 1}, '{"$set":["a","b",1]}', ...),
    ("frozenset", frozenset({(2, 1)}), '{"$frozenset":[{"$tuple":[2,1]}]}', ...),
    ("dict", {"b": 1, "a": {}}, '{"b":1,"a":{}}', ...),
    ("dict with other keys", {1: "a", None: 2}, '{"$items":[[1,"a"],[null,2]]}', ...),
    ("dict with a tuple as key", {(1, 2): 3}, '{"$items":[[{"$tuple":[1,2]},3]]}', ...),
    ("dict with a NUL in a key", {"a": 1, "\0": 2}, '{"$items":[["a",1],[{"$text":"AA=="},2]]}', ...),
    ("dict with a surrogate in a key", {"\udfff": 2}, '{"$items":[[{"$text":"7b+/"},2]]}', ...),
    ("dict with a text of its own class as key", {Name("a"): 1}, '{"a":1}', {"a": 1}),
    (
        "dict with members of enums as keys",
        {Word.YES: 1, Colour.RED: 2},
        '{"$items":[["yes",1],["red",2]]}',
        {"yes": 1, "red": 2},
    ),
    ("dict that looks like a mark", {"$secret": "KEY"}, '{"$dict":{"$secret":"KEY"}}', ...),
    ("dict that looks like a wrapped mark", {"$dict": {"$a": 1}}, '{"$dict":{"$dict":{"$dict":{"$a":1}}}}', ...),
    ("dict with $ and more", {"$ref": 1, "b": 2}, '{"$ref":1,"b":2}', ...),
    ("datetime", AT, '"2026-01-02T03:04:05.678901+00:00"', "2026-01-02T03:04:05.678901+00:00"),
    ("naive datetime", datetime(2026, 1, 2), '"2026-01-02T00:00:00"', "2026-01-02T00:00:00"),  # noqa: DTZ001
    ("date", date(2026, 1, 2), '"2026-01-02"', "2026-01-02"),
    ("time", time(3, 4), '"03:04:00"', "03:04:00"),
    ("timedelta", timedelta(1), *["datetime.timedelta(days=1)"] * 2),
    ("Decimal", Decimal("1.10"), *["Decimal('1.10')"] * 2),
    ("UUID", UUID(int=1), *["UUID('00000000-0000-0000-0000-000000000001')"] * 2),
    ("Path", PurePosixPath("/a"), *["PurePosixPath('/a')"] * 2),
    ("Fraction", Fraction(1, 2), *["Fraction(1, 2)"] * 2),
    ("complex", 1j, *["1j"] * 2),
    ("range", range(3), *["range(0, 3)"] * 2),
    ("deque", deque([1]), *["deque([1])"] * 2),
    ("dataclass", Data(1), *["Data(a=1)"] * 2),
    ("exception", ValueError("x"), *["ValueError('x')"] * 2),
    ("class", Data, *[repr(Data)] * 2),
    ("Ellipsis", [...], '[{"$py":["ellipsis","Ellipsis"]}]', [PythonValue("ellipsis", "Ellipsis")]),
    ("Enum", Colour.RED, '"red"', "red"),
    ("Enum of a list", Colour.MANY, '["red","blue"]', ["red", "blue"]),
    ("IntEnum", Level.LOW, "1", 1),
    ("StrEnum", Word.YES, '"yes"', "yes"),
    ("IntFlag", Bits.A | Bits.B, "3", 3),
    ("defaultdict", defaultdict(int, a=1), '{"a":1}', {"a": 1}),
    ("OrderedDict", OrderedDict(b=1, a=2), '{"b":1,"a":2}', {"b": 1, "a": 2}),
    ("Counter", Counter("aa"), '{"a":2}', {"a": 2}),
    ("subclass of str", Name("a"), '"a"', "a"),
    ("subclass of int", Whole(5), "5", 5),
    ("subclass of float", Real(0.5), "0.5", 0.5),
    ("subclass of list", Items([1]), "[1]", [1]),
    ("subclass of dict", Table(a=1), '{"a":1}', {"a": 1}),
    ("subclass of bytes", Raw(b"a"), '{"$bytes":"YQ=="}', b"a"),
    ("subclass of datetime", Moment(2026, 1, 2), '"2026-01-02T00:00:00"', "2026-01-02T00:00:00"),
    ("Struct", Record(1, (2,)), '{"a":1,"b":{"$tuple":[2]}}', {"a": 1, "b": (2,)}),
    ("Struct with a tag like a mark", Tagged(), '{"$dict":{"$kind":"t"}}', {"$kind": "t"}),
    ("content", UserContent(value="\0"), '{"kind":"user","value":{"$text":"AA=="}}', {"kind": "user", "value": "\0"}),
    ("PythonValue", PythonValue("a", "b"), '{"$py":["a","b"]}', ...),
    ("Secret", Secret("KEY"), '{"$secret":"KEY"}', ...),
    ("cycle", SELF, '[{"$cycle":true}]', [PythonValue("cycle", "…")]),
    ("shared, no cycle", [SHARED, SHARED], "[[1],[1]]", ...),
    (
        "set that is read as no set",
        {Colour.MANY},
        '{"$set":[["red","blue"]]}',
        PythonValue("$set", "[['red', 'blue']]"),
    ),
    (
        "key that is read as no key",
        {Colour.MANY: 1},
        '{"$items":[[["red","blue"],1]]}',
        PythonValue("$items", "[[['red', 'blue'], 1]]"),
    ),
]


@pytest.mark.parametrize(("value", "text", "back"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_every_type_has_its_text(value: Any, text: str, back: Any) -> None:
    """`...` where the value comes back as it went in; one text twice where it is told by its repr."""
    if text == back and not text.startswith('"'):
        text, back = f'{{"$py":["{type(value).__name__}",{json.dumps(back)}]}}', PythonValue(type(value).__name__, back)
    back = value if back is ... else back
    assert stored(value) == text
    assert same(read_back(value), back)
    assert same(read_back(read_back(value)), back), "what was read can be written again"
    for place in (ToolCallContent(tool_name="t", tool_args={"x": value}), ToolResultContent(tool_result=value)):
        write(place, annotations={"note": value})


def test_a_number_of_5916_digits_is_kept_whatever_the_limit() -> None:
    assert stored(LONG) == f'{{"$int":"{LONG:#x}"}}'
    assert read_back({"n": [LONG, -LONG]}) == {"n": [LONG, -LONG]}
    with pytest.raises(ValueError, match="Exceeds the limit"):
        json.dumps(LONG)


# Values that fight back.


class Mute:
    def __repr__(self) -> str:
        raise ValueError


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ValueError

    def __instancecheck__(cls, _: Any) -> bool:
        raise ValueError

    def __subclasscheck__(cls, _: Any) -> bool:
        raise ValueError


class Nobody(metaclass=Nameless):
    def __repr__(self) -> str:
        raise RecursionError


class Liar:
    """Claims to be everything, equals everything, raises at everything else."""

    @property  # type: ignore[misc]
    def __class__(self):
        raise ValueError

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)

    def __iter__(self):
        raise ValueError

    def __hash__(self) -> int:
        raise ValueError

    def __eq__(self, other: object) -> bool:
        raise ValueError


class Yes(Data):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Odd(str):
    """A repr of this kind can not be cut."""

    __slots__ = ()

    def __getitem__(self, _: Any) -> Any:
        raise ValueError


class Wordy:
    def __repr__(self) -> str:
        return Odd("w" * 20_000)


class Torn:
    def __repr__(self) -> str:
        return "\0\ud800"


class Growing:
    """Changes what it lies in while it is written."""

    def __init__(self) -> None:
        self.inside: list[Any] = [self, 1]
        self.table: dict[str, Any] = {"a": self, "b": 1}

    def __repr__(self) -> str:
        self.inside.clear()
        self.table.clear()
        self.table.update(dict.fromkeys(map(str, range(1000))))
        return "growing"


class Own(enum.Enum):
    ENDLESS = 1

    @property
    def value(self) -> Any:
        return self


def released() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


class Nowhere(tzinfo):
    def tzname(self, _: datetime | None) -> str:
        raise ValueError

    def dst(self, _: datetime | None) -> timedelta:
        raise ValueError

    def utcoffset(self, _: datetime | None) -> timedelta:
        raise ValueError


EVIL: list[tuple[Callable[[], Any], str]] = [
    (Mute, '{"$py":["Mute","Mute"]}'),
    (Nobody, '{"$py":["object","object"]}'),
    (Torn, '{"$py":["Torn",{"$text":"AO2ggA=="}]}'),
    (Wordy, f'{{"$py":["Wordy","{"w" * 10_000}"]}}'),
    (lambda: Growing().inside, '[{"$py":["Growing","growing"]},1]'),
    (lambda: Growing().table, '{"a":{"$py":["Growing","growing"]},"b":1}'),
    (lambda: {"x": Yes(1)}, '{"x":{"a":1}}'),
    (lambda: PythonValue(5, None), '{"$py":[5,null]}'),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "text"), EVIL, ids=range(len(EVIL)))
def test_evil_values_do_no_harm(make: Callable[[], Any], text: str) -> None:
    assert stored(make()) == text
    write(ToolResultContent(tool_result=make(), extra={"again": [make()]}), annotations={"note": make()})


def chain_of(depth: int, wrap: Callable[[Any], Any] = lambda inner: [inner]) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = wrap(value)
    return value


DEPTH = tried(20_000, 20_000, 100_000)  # Python 3.13 walks 3,000 levels
DEEP, DEEP_DICT = chain_of(DEPTH), chain_of(DEPTH, lambda inner: {"a": inner})
ANYTHING: list[Callable[[], Any]] = [
    *(make for make, _ in EVIL),
    *(Liar, released, object, lambda: Own.ENDLESS, lambda: {Own.ENDLESS: 1}, lambda: iter(()), lambda: print),
    *(lambda: DEEP, lambda: DEEP_DICT, lambda: {1, frozenset({"\0"})}),
    *(lambda: "\ud800" * 70_000, lambda: "x" * 70_000, lambda: b"x" * 70_000, lambda: ["long"] * 20_000),
    *(lambda: {"k" * 70_000: 1}, lambda: 1 << 300_000, lambda: SELF, lambda: sys, lambda: pytest, lambda: Secret("S")),
    *(lambda: datetime(2026, 1, 1, tzinfo=Nowhere()), lambda: {"$blob": {"name": "forged", "as": "text"}}),
]


@given(st.data())
def test_writing_never_raises_and_live_is_as_resumed(data: st.DataObject) -> None:
    leaves = st.integers(0, len(ANYTHING) - 1).map(lambda place: ANYTHING[place]())
    nest = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    )
    tree: Any = data.draw(nest)
    contents: list[Any] = [
        KeyValueContent(key=tree, value=tree),
        ToolCallContent(tool_name=tree, tool_args=tree, meta=tree),
        BeginContent(name=tree, state=tree, opened=tree, annotations=tree),
        FaultContent(of=tree, error=tree, wait_s=tree),
        TimerContent(due_at=tree, key="k"),
    ]
    for content in contents:
        write(content, annotations={"tree": tree})


# Plain JSON and what only looks like it.

TEXT = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["$blob", "$dict", "$secret", "$py", "$items", "$", '{"$', "\\u0000", "\0", "name"]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
NASTY = st.recursive(
    SCALAR | st.integers(2**62, 2**70) | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(TEXT | st.integers() | st.binary(max_size=2), inner, max_size=3)
    ),
)


@given(NASTY)
def test_values_come_back_as_they_were(value: Any) -> None:
    assert repr(read_back(value)) == repr(value)
    json.loads(stored(value)), stored(value).encode()
    assert "\\u0000" not in stored(value).replace("\\\\", "")
    write(KeyValueContent(key="k", value=value), annotations={"k": value})


@given(st.recursive(SCALAR, lambda inner: st.dictionaries(TEXT, inner, max_size=2) | st.lists(inner, max_size=2)))
def test_nothing_plain_becomes_a_mark(value: Any) -> None:
    """What a model can say never comes back as anything but itself."""
    back = read_back(value)
    todo = [back]
    while todo:
        item = todo.pop()
        assert type(item) in (type(None), bool, int, float, str, list, dict)
        todo += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    _, row, blobs = write(ToolCallContent(tool_name="t", tool_args={"$blob": value}))
    assert blob_names(row) == []
    assert not blobs


@pytest.mark.parametrize(
    "forged",
    [
        {"$blob": {"name": "0" * 64, "as": "text", "size": 1}},
        {"$dict": {"$secret": "KEY"}},
        {"$secret": "KEY"},
        {"$py": ["os", "system"]},
        {"$dict": {"$dict": {"$blob": {"name": "x", "as": "json", "size": 1, "needs": ["y"]}}}},
    ],
)
def test_nobody_can_forge_a_mark(forged: Any) -> None:
    for value in (forged, [forged], {"a": forged}, {"$x": forged, "b": 1}, (forged,), {1: forged}):
        stamped, row, _ = write(ToolResultContent(tool_result=value, extra=forged), annotations=forged)
        assert stamped.content == ToolResultContent(tool_result=value, extra=forged)
        assert stamped.annotations == forged
        assert blob_names(row) == []
    big = "x" * 70_000
    _, row, blobs = write(ToolResultContent(tool_result=[forged, big]))
    assert blob_names(row) == list(blobs), "only the true one"


def test_the_same_content_has_one_text_whichever_way_it_is_written() -> None:
    contents: list[Any] = [
        ToolCallContent(tool_name="t", tool_args={"a": [1, 2.5, None, True]}, tool_call_id="c", status="error"),
        UserContent(value="v", parts=[Part(type="image", blob="b"), Part(type="text", text="t")]),
        BeginContent(name="n", opened=Opened(session="s", name="n", record="r")),
        FaultContent(of=3, error=Error(type="t", message="m", http_status=503), wait_s=0.5),
        KeyValueContent(key="k", value=None),
    ]
    for content in contents:
        slow = encode_content(msgspec.structs.replace(content, extra={"x": math.nan}))
        assert slow.replace('"extra":{"x":{"$float":"nan"}},', "") == encode_content(content)


def test_what_is_returned_is_no_longer_the_writers_own() -> None:
    args = {"list": [1]}
    stamped, _, _ = write(ToolCallContent(tool_name="t", tool_args=args))
    args["list"].append(2)
    assert stamped.content == ToolCallContent(tool_name="t", tool_args={"list": [1]})


# Depth.


def levels(value: Any) -> int:
    deepest, level = 0, [value]
    while level := [item for item in level if isinstance(item, list | dict)]:
        deepest += 1
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return deepest


@given(st.lists(st.sampled_from(["list", "dict", "wide", "text"]), max_size=200))
def test_text_is_never_too_deep_for_a_reader(wraps: list[str]) -> None:
    value: Any = 1
    for wrap in wraps:
        siblings: Any = {"wide": [{}, [], {}], "text": ["},{", "],[", "[[[[{{{{"]}.get(wrap, [])
        value = {"a": value} if wrap == "dict" else [*siblings, value, *siblings]
    content = KeyValueContent(key="k", value=value)
    text = encode_content(content)
    plain = levels(value) <= MAX_DEPTH
    assert levels(json.loads(text)) <= MAX_DEPTH + 2
    assert (decode_content(text, {}) == content) == plain
    if not plain:
        assert '{"$json":"' in text


def test_what_lies_too_deep_is_one_text() -> None:
    back = read_back(chain_of(MAX_DEPTH + 100))
    for _ in range(MAX_DEPTH):
        (back,) = back
    assert back == PythonValue("json", "[" * 100 + '"end"' + "]" * 100)


def test_what_python_can_not_walk_does_not_break_it() -> None:
    text = stored(DEEP)
    assert text == "[" * MAX_DEPTH + '{"$py":["list","list"]}' + "]" * MAX_DEPTH


# Large values.


def test_large_values_lie_beside_the_row() -> None:
    text, data = "é\0\ud800" * LARGE, b"\xff" * (LARGE + 1)
    content = ToolResultContent(
        tool_result={"text": text, "data": data, "small": 1},
        tool_call_id="x" * (LARGE + 1),
        extra={"list": [1] * LARGE},
    )
    stamped, row, blobs = write(content)
    assert stamped.content == content
    assert len(row.content) < 1000
    found = json.loads(row.content)
    marks = [found["extra"], found["tool_result"]["text"], found["tool_result"]["data"], found["tool_call_id"]]
    assert [list(mark["$blob"]) for mark in marks] == [["name", "as", "size"]] * 4
    assert [mark["$blob"]["as"] for mark in marks] == ["json", "text", "bytes", "text"]
    assert [mark["$blob"]["size"] for mark in marks] == [len(blobs[mark["$blob"]["name"]]) for mark in marks]
    assert sorted(blob_names(row)) == sorted(mark["$blob"]["name"] for mark in marks)
    assert blobs[marks[2]["$blob"]["name"]] == data
    assert found["tool_result"]["small"] == 1


def test_the_edge_of_large_is_64_kib() -> None:
    for size, names in ((LARGE, 0), (LARGE + 1, 1)):
        assert len(blob_names(write(UserContent(value="x" * 10), annotations={"b": b"x" * size})[1])) == 1
        assert len(blob_names(write(ThoughtOf("x" * (size - 2)))[1])) == names
        assert len(blob_names(write(ThoughtOf("é" * (size // 2 - 1 + names)))[1])) == names


def ThoughtOf(value: str) -> Content:  # noqa: N802
    return KeyValueContent(key="k", value=value)


def test_a_whole_field_of_large_values_names_all_that_it_needs() -> None:
    parts = [f"{number}".zfill(LARGE + 1) for number in range(600)]
    hits = RetrievalContent(query="q", hits=[Hit(document="d" * 100, chunk=f"{n}") for n in range(1000)])
    content = ToolResultContent(tool_result=parts)
    stamped, row, blobs = write(content, annotations={"list": [1] * LARGE, "part": parts[0]})
    assert stamped.content == content
    mark = json.loads(row.content)["tool_result"]["$blob"]
    assert (mark["as"], len(mark["needs"])) == ("json", 600)
    assert set(blob_names(row)) == set(blobs)
    assert len(blob_names(row)) == 602, "each once"
    assert write(hits)[0].content == hits


def test_a_letter_keeps_large_values_inside() -> None:
    content = ToolResultContent(tool_result=["x" * LARGE * 2, b"y" * LARGE * 2, "\0"])
    text = encode_content(content)
    assert '{"$blob"' not in text
    assert decode_content(text, {}) == content


def test_what_keeps_large_values_can_refuse_them() -> None:
    def refuse(data: bytes) -> str:
        raise ValueError(len(data))

    big = "x" * LARGE * 2
    for value in (big, [big], {"a": (big,)}, {big: 1}, big.encode(), [1] * LARGE):
        with pytest.raises(ValueError, match=r"^\d+$"):
            to_row(entry(ToolResultContent(tool_result=value)), GENESIS, SALT, refuse)


def test_one_value_is_kept_once() -> None:
    keeper = Blobs()
    big = "x" * (LARGE + 1)
    content = ToolResultContent(tool_result=[big, {"again": big}])
    texts = [to_row(entry(content), GENESIS, SALT, keeper.keep)[1].content for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(keeper.take()) == 1


# Fields that hold another type than they declare; formats and kinds that are not known.


def test_a_field_of_another_type_is_read_as_it_was_written() -> None:
    error = Error(type="t", message="m")
    contents: list[Any] = [
        UserContent(value=5),  # type: ignore[arg-type]
        UserContent(value=b"\xff", parts=[Part(type="text", text="t")]),  # type: ignore[arg-type]
        ChatCompletionContent(output=None),  # type: ignore[arg-type]
        ToolCallContent(tool_name="t", tool_args={1: 2}),  # type: ignore[dict-item]
        FaultContent(of="two", error=error),  # type: ignore[arg-type]
        FaultContent(of="\0", error=error, wait_s=math.inf),  # type: ignore[arg-type]
        UserContent(value=Secret("NAME")),  # type: ignore[arg-type]
        TimerContent(due_at=AT, key="\0"),
        TimerContent(due_at="\ud800", key="k"),  # type: ignore[arg-type]
        ToolResultContent(tool_result=1, status="\ud800"),  # type: ignore[arg-type]
        FaultContent(of=1, error={"type": "t", "\ud800": 1}, wait_s=10**400),  # type: ignore[arg-type]
        TimerContent(due_at=AT, key="k"),
    ]
    for content in contents:
        assert write(content)[0].content == content


class Wider(UserContent, frozen=True, kw_only=True, tag="user"):
    more: int = 5


def test_members_that_are_not_known_stay_in_the_text() -> None:
    stamped, row, _ = write(Wider(value="v", more=6))
    assert '"more":6' in row.content
    assert stamped.content == UserContent(value="v")


def row_of(content: str, **more: Any) -> Row:
    base = Row("r", 3, "user", "2026-01-02T03:04:05.678901Z", 1, "[]", VERSION, content, None, SALT, b"")
    return msgspec.structs.replace(base, **more)


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(NewerRecord, match=rf"Entry r\.3 has format {VERSION + 1}; this release reads up to {VERSION}"):
        from_row(row_of("whatever", version=VERSION + 1), {})


USER = '{"kind":"user","value":"v"}'


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (row_of('{"kind":"levitation","value":1}'), "this release knows no kind 'levitation'"),
        (row_of('{"value":1}'), "this release knows no kind None"),
        (row_of('{"kind":"user"}'), "Missing required argument 'value'"),
        (row_of('{"kind":"user","value":'), "Input data was truncated"),
        (row_of("[1]"), "'list' object has no attribute 'get'"),
        (row_of('{"kind":"user","value":{"$new":1}}'), "$new: '$new' is not known"),
        (row_of('{"kind":"user","value":{"$int":"zz"}}'), "invalid literal for int"),
        (row_of('{"kind":"user","value":{"$text":"7aCAx"}}'), "Invalid base64-encoded string"),
        (
            row_of('{"kind":"user","value":{"$blob":{"name":"gone","as":"text","size":9}}}'),
            "$blob: 'gone' is not known",
        ),
        (row_of('{"kind":"user","value":{"$blob":{}}}'), "$blob: 'name' is not known"),
        (row_of('{"kind":"user","value":' + "[" * 5000 + "]" * 5000 + "}"), "recursion"),
        (row_of('{"kind":"user","value":{"$float":1' + "0" * 400 + "}}"), "int too large to convert to float"),
        (row_of(USER, version=0), "0"),
        (row_of(USER, annotations="{"), "Input data was truncated"),
        (row_of(USER, causes="[null]"), "Expected `int | array`, got `null`"),
        (row_of(USER, at="yesterday"), "Invalid isoformat string"),
    ],
)
def test_what_can_not_be_read_says_which_entry_and_why(row: Row, found: str) -> None:
    assert blob_names(row) in ([], ["gone"])
    with pytest.raises(BrokenRecord) as caught:
        from_row(row, {})
    assert str(caught.value).startswith("'entry r.3' is not a readable Gesta record: ")
    assert found in str(caught.value)


def test_a_letter_that_can_not_be_read_says_why() -> None:
    with pytest.raises(BrokenRecord, match="this release knows no kind 'levitation'"):
        decode_content('{"kind":"levitation"}', {})


def test_older_formats_are_brought_up_step_by_step() -> None:
    old = '{"kind":"speech","text":{"$text":"AA=="}}'
    steps = {
        VERSION - 2: lambda members: {"kind": "speech", "words": members["text"]},
        VERSION - 1: lambda members: {"kind": "user", "value": members["words"]},
    }
    assert _read(old, {}, VERSION - 2, steps) == UserContent(value="\0")


OF_0_1_0: list[tuple[str, dict[str, Any], Content]] = [
    (
        '"kind":"system","value":"v"',
        {"from": ["top", "child"], "corrects": 4, "document": {"content": "d"}, "history": True},
        SystemContent(value="v", source=["top", "child"], corrects=4, document={"content": "d"}, history=True),
    ),
    (
        '"kind":"user","value":"v"',
        {"document": {"content": "d"}, "history": True},
        UserContent(value="v", document={"content": "d"}, history=True),
    ),
    (
        '"kind":"assistant","value":"v"',
        {"history": True, "return_values": {"a": 1}},
        AssistantContent(value="v", history=True, return_values={"a": 1}),
    ),
    (
        '"kind":"chat-completion","output":"o"',
        {"agent_actions": {"actions": []}},
        ChatCompletionContent(output="o", actions={"actions": []}),
    ),
    (
        '"kind":"attempt","of":1,"number":1,"epoch":1',
        {"effect": "once"},
        AttemptContent(of=1, number=1, epoch=1, effect="once"),
    ),
    (
        '"kind":"tool-result","tool_result":1',
        {"state": "paid", "error": {"type": "T", "message": "m", "traceback": "t"}, "document": {}, "by": "ann"},
        ToolResultContent(
            tool_result=1, state="paid", error=Error(type="T", message="m", traceback="t"), document={}, by="ann"
        ),
    ),
    ('"kind":"tool-result","tool_result":1', {"from": "r.7"}, ToolResultContent(tool_result=1, copy_of="r.7")),
    (
        '"kind":"fault","of":1,"error":{"type":"T","message":"m"}',
        {"run": "r"},
        FaultContent(of=1, error=Error(type="T", message="m"), run="r"),
    ),
    ('"kind":"begin"', {"allowance": {"usd": 1.5}}, BeginContent(allowance={"usd": 1.5})),
    ('"kind":"end"', {"null": True, "goal": "g"}, EndContent(null=True, goal="g")),
    ('"kind":"edge","source":[],"dest":[]', {"child": "c"}, EdgeContent(source=[], dest=[], child="c")),
    (
        '"kind":"decision","choice":"a","candidates":["a"]',
        {"task_type": "research"},
        DecisionContent(choice="a", candidates=["a"], task_type="research"),
    ),
    ('"kind":"question","value":"?"', {"raises": "usd"}, QuestionContent(value="?", raises="usd")),
    (
        '"kind":"compaction","from_seq":1,"to_seq":2',
        {"tokens": 9, "summary_failed": {"reason": "failed", "run": "r"}},
        CompactionContent(from_seq=1, to_seq=2, tokens=9, error=Error(type="summary", message="failed"), run="r"),
    ),
]


def test_every_member_that_version_0_1_0_read_again_is_tried_here() -> None:
    tried = {(content.kind, name) for _, extra, content in OF_0_1_0 for name in extra}
    assert tried == {(kind, name) for kind, lifted in LIFTED.items() for name in lifted}


@pytest.mark.parametrize(("members", "extra", "content"), OF_0_1_0)
def test_what_version_0_1_0_wrote_in_extra_is_a_field_and_what_format_2_holds_there_is_not(
    members: str, extra: dict[str, Any], content: Content
) -> None:
    def row(extra: dict[str, Any], version: int) -> Row:
        text = json.dumps(extra, separators=(",", ":"))
        return row_of("{" + f'{members},"extra":{text}' + "}", kind=str(content.kind), version=version)

    assert from_row(row(extra, 1), {}).content == content
    own = {"own": 1, **extra}
    assert from_row(row(own, 1), {}).content == msgspec.structs.replace(content, extra={"own": 1})
    left = from_row(row(own, 2), {}).content
    assert left.extra == own
    assert msgspec.structs.replace(left, extra=None) == decode_content("{" + members + "}", {})


@pytest.mark.parametrize(("members", "extra", "content"), OF_0_1_0)
def test_a_users_own_member_of_that_name_stays_where_it_is(
    members: str, extra: dict[str, Any], content: Content
) -> None:
    odd = {name: [[None]] for name in extra}
    row = row_of("{" + f'{members},"extra":{json.dumps(odd)}' + "}", kind=str(content.kind), version=1)
    assert from_row(row, {}).content == msgspec.structs.replace(decode_content("{" + members + "}", {}), extra=odd)


def test_a_large_extra_of_version_0_1_0_lies_in_a_blob_and_is_read_all_the_same() -> None:
    text = json.dumps({"error": {"type": "T", "message": "m", "traceback": "t" * LARGE}, "own": 1})
    keeper = Blobs()
    name = keeper.keep(text.encode())
    blob = json.dumps({"$blob": {"name": name, "as": "json", "size": len(text)}})
    row = row_of(f'{{"kind":"tool-result","tool_result":1,"extra":{blob}}}', kind="tool-result", version=1)
    assert blob_names(row) == [name]
    content = from_row(row, {name: text.encode()}).content
    error = Error(type="T", message="m", traceback="t" * LARGE)
    assert content == ToolResultContent(tool_result=1, error=error, extra={"own": 1})


# Stamps and digests.


def test_an_entry_is_read_as_it_was_stamped() -> None:
    stamped, row, _ = write(
        UserContent(value="v"), run="run-1", seq=7, span=3, causes=(5, ("other", 2)), annotations={"a": 1}
    )
    assert row == Row(
        "run-1",
        7,
        "user",
        "2026-01-02T03:04:05.678901Z",
        3,
        '[5,["other",2]]',
        VERSION,
        '{"kind":"user","value":"v"}',
        '{"a":1}',
        SALT,
        row.digest,
    )
    assert type(row.kind) is str
    assert (stamped.digest, stamped.version, stamped.causes) == (row.digest, VERSION, (5, ("other", 2)))
    placed = from_row(msgspec.structs.replace(row, pos=9), {})
    assert placed == msgspec.structs.replace(stamped, pos=9)


def digest_by_hand(row: Row, prev: bytes) -> bytes:
    """The formula of the design, by other means."""
    head = [row.run, row.seq, row.kind, row.at, row.span, json.loads(row.causes), row.version]
    header = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    sealed = sha256(row.salt + row.content.encode() + b"\0" + (row.annotations or "").encode()).digest()
    return sha256(prev + sha256(header).digest() + sealed).digest()


def golden() -> Row:
    content = ToolCallContent(
        tool_name="pay", tool_args={"to": "Zoë", "sum": 12.5, "key": b"\0"}, tool_call_id="call_1"
    )
    made = entry(content, run="0123abcd", seq=12, span=4, causes=(11, ("feed", 2)), annotations={"team": "red"})
    return to_row(made, sha256(b"before").digest(), SALT, Blobs().keep)[1]


def test_the_digest_never_drifts() -> None:
    """A change here breaks every record on every disk."""
    row = golden()
    assert row.content == (
        '{"kind":"tool-call","tool_name":"pay","tool_args":{"to":"Zoë","sum":12.5,"key":{"$bytes":"AA=="}},'
        '"tool_call_id":"call_1"}'
    )
    assert (row.version, row.digest.hex()) == (2, "3fc2a3f659af0cbcc15cd4ba25163d4dec54c45d356c4a6cd2d7906737fe2b52")
    assert row.digest == digest_by_hand(row, sha256(b"before").digest())


def test_the_digest_of_an_entry_of_format_1_never_drifts_either() -> None:
    row = msgspec.structs.replace(golden(), version=1)
    digest = link(sha256(b"before").digest(), row)
    assert digest.hex() == "0f18749ef3384f3981575c1eeb60053ee410bbf28afa4e675c8a52ac1f1356cd"
    assert digest == digest_by_hand(row, sha256(b"before").digest())


def flip(value: Any) -> Any:
    match value:
        case int():
            return value + 1
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case str():
            middle = len(value) // 2
            return value[:middle] + chr(ord(value[middle]) ^ 1) + value[middle + 1 :]
    return "{}"


@pytest.mark.parametrize("column", [name for name in Row.__struct_fields__ if name != "pos"])
def test_a_changed_byte_is_found(column: str) -> None:
    row, prev = golden(), sha256(b"before").digest()
    assert verify(row, prev)
    changed = msgspec.structs.replace(row, **{column: flip(getattr(row, column))})
    assert changed != row
    assert not verify(changed, prev)
    assert not verify(row, flip(prev))


def test_bytes_that_change_sides_are_found() -> None:
    row, prev = golden(), sha256(b"before").digest()
    moved = msgspec.structs.replace(row, salt=row.salt + row.content[:1].encode(), content=row.content[1:])
    assert link(prev, moved) == row.digest, "the formula alone would not find it"
    assert not verify(moved, prev)
    assert not verify(row, prev[:-1])
    assert not verify(row, prev, b"short")
    assert not verify(msgspec.structs.replace(row, content="\ud800"), prev), "and no text can make it raise"


def test_an_erased_entry_leaves_the_chain_whole() -> None:
    rows: list[Row] = []
    prev = GENESIS
    for seq in range(1, 4):
        made = entry(UserContent(value=f"secret {seq}"), seq=seq, annotations={"n": seq})
        rows.append(to_row(made, prev, bytes([seq]) * 16, Blobs().keep)[1])
        prev = rows[-1].digest
    kept = seal(rows[1].salt, rows[1].content, rows[1].annotations)
    erased = msgspec.structs.replace(rows[1], content="", annotations=None, salt=b"")
    assert verify(rows[0], GENESIS)
    assert verify(erased, rows[0].digest, kept)
    assert verify(rows[2], erased.digest)
    assert not verify(erased, rows[0].digest), "without its seal"
    assert not verify(msgspec.structs.replace(erased, at=rows[0].at[:-2] + "0Z"), rows[0].digest, kept)
    assert kept != seal(bytes(16), rows[1].content, rows[1].annotations), "who guesses the text still lacks the salt"


# Canonical bytes.


def test_equal_json_values_have_equal_canonical_bytes() -> None:
    assert canonical({"b": [1, {"d": 1, "c": 2}], "a": None}) == b'{"a":null,"b":[1,{"c":2,"d":1}]}'
    assert digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1}) == sha256(b'{"a":2,"b":1}').hexdigest()
    assert (
        canonical([1.0, 1e2, -0.0, 2.0**60, 0.5])
        == canonical([1, 100, 0, 2**60, 0.5])
        == b"[1,100,0,1152921504606846976,0.5]"
    )
    assert canonical([1e300]) == b"[1e300]", "too large to be told apart from its neighbours"
    assert canonical("1") != canonical(1) != canonical(True)
    assert canonical([1, 2]) != canonical([2, 1])


def test_canonical_takes_anything() -> None:
    assert canonical({"b": "\0", "a": {"y", "x"}}) == b'{"a":{"$set":["x","y"]},"b":{"$text":"AA=="}}'
    assert canonical(math.nan) != canonical({"$float": "nan"})
    assert canonical("x" * LARGE * 2) == b'"' + b"x" * LARGE * 2 + b'"'
    assert digest_of(DEEP) != digest_of(DEEP_DICT)


@given(st.dictionaries(TEXT, NASTY, max_size=4), st.randoms(use_true_random=False))
def test_order_of_members_does_not_change_a_digest(members: dict[str, Any], random: Any) -> None:
    names = list(members)
    random.shuffle(names)
    assert digest_of({name: members[name] for name in names}) == digest_of(members)
