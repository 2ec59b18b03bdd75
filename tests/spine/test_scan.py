"""Objects in a text are found as they are, whatever stands around them, in a time that goes with its length."""

import json
import math
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costs import LINEAR, growth

from gesta.text.objects import DEEP, LEVELS, LONG, UNCLOSED, TextObject, objects

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)
PROSE = st.text().filter(lambda text: "{" not in text)


def values(text: str) -> list[object]:
    return [found.value for found in objects(text)]


def best_ms(text: str, tries: int = 5) -> float:
    """The best of some, by the time of this process alone, so that a busy machine does not count."""
    times = []
    for _ in range(tries):
        start = time.process_time()
        objects(text)
        times.append((time.process_time() - start) * 1000)
    return min(times) / (1 if sys.gettrace() is None else 5)  # coverage counts every line


@pytest.mark.slow
@given(st.lists(st.tuples(PROSE, OBJECTS)), PROSE, st.booleans())
def test_objects_between_words_are_found_with_their_places(parts, end, ascii_) -> None:
    pieces = [(words, json.dumps(value, ensure_ascii=ascii_), value) for words, value in parts]
    text = "".join(words + piece for words, piece, _ in pieces) + end
    found = objects(text)
    assert [one.value for one in found] == [value for _, _, value in pieces]
    assert [text[one.start : one.end] for one in found] == [piece for _, piece, _ in pieces]
    assert all(one.problem is None for one in found)


@given(st.text(alphabet='{}[]"\\:,a1 \n\ud800', max_size=60))
def test_no_text_raises_and_places_never_overlap(text: str) -> None:
    found = objects(text)
    ends = [0, *(one.end for one in found)]
    assert all(last <= one.start < one.end <= len(text) for last, one in zip(ends, found, strict=False))
    assert all((one.value is None) == (one.problem is not None) for one in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing here", []),
        ("a set {1, 2}, a {name} and code { return 1; }", []),
        ('use { for 5" pipes: {"a": "}"}', [{"a": "}"}]),
        ('{"a": {"b": "{"}} {"c": []}', [{"a": {"b": "{"}}, {"c": []}]),
        ('[{"a": 1}, {"b": 2}]', [{"a": 1}, {"b": 2}]),
        ('{{"a": 1}}', [{"a": 1}]),
        ('{"a": "two\nlines\tand \\" a quote"}', [{"a": 'two\nlines\tand " a quote'}]),
        ('```json\n{"a": "\\ud800"}\n```', [{"a": "\ud800"}]),
        ("{}", [{}]),
    ],
)
def test_what_stands_around_does_not_matter(text: str, expected: list[object]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1,}', "Illegal trailing comma before end of object at ',}'"),
        ('{"a": {"b": 1, \n}, "c": 2}', """Illegal trailing comma before end of object at ', \\n}, "c": 2}'"""),
        ('{"a": [1 , ], "c": 2}', """Illegal trailing comma before end of array at ', ], "c": 2}'"""),
        ('{"a": 1,]}', "Expecting property name enclosed in double quotes at ']}'"),
        ('{"a":]}', "Expecting value at ']}'"),
        ('{"a" 1}', "Expecting ':' delimiter at '1}'"),
        ("{'a': {1}}", "Expecting property name enclosed in double quotes at \"'a': {1}}\""),
        ("{'a': '\\x41'}", "Expecting property name enclosed in double quotes at \"'a': '\\\\x41'}\""),
        ("{a: 1}", "Expecting property name enclosed in double quotes at 'a: 1}'"),
        ('{"a": 1', UNCLOSED),
        ('{"a": "cut off } here', UNCLOSED),
        ('{"a":' * 5000 + "1" + "}" * 5000, DEEP),
        ('{"a":' + "[" * LEVELS + "]" * LEVELS + "}", DEEP),
        ('{"a": ' + "9" * 5000 + "}", LONG),
    ],
)
def test_what_nobody_can_read_says_why(text: str, problem: str) -> None:
    assert objects(f"so: {text}") == [TextObject(4, 4 + len(text), None, problem)]


def test_the_quotes_and_words_of_python_are_read_as_those_of_json() -> None:
    said = """{'a': 'it\\'s "x"\\n', "b": [True, False, None], 'c': "None of it's", 'e': {'f': ''}}"""
    given = {"a": 'it\'s "x"\n', "b": [True, False, None], "c": "None of it's", "e": {"f": ""}}
    assert values(f"It's so: {said}, isn't it?") == [given]


def test_how_deep_an_object_may_be_is_no_matter_of_the_python_that_reads_it() -> None:
    for deep in ("[" * (LEVELS - 1) + "]" * (LEVELS - 1), json.dumps([[[]]] * LEVELS)):
        assert values('so: {"a":' + deep + "}") == [{"a": json.loads(deep)}]
    assert values('{"a" 1} {"a":' + "[" * LEVELS + "]" * LEVELS + "}") == [None, None]


def test_a_broken_object_hides_none_after_it() -> None:
    assert values('{"a": 1,} and {"b": 2} and {"c" 3} and {"d": 4}') == [None, {"b": 2}, None, {"d": 4}]


def test_what_lies_in_an_object_that_is_not_closed_is_none_of_its_own() -> None:
    assert values('{"request": "batch", "calls": [{"request": "pay"}, {"requ') == [None]


def test_an_object_of_100_kb_is_read_in_milliseconds() -> None:
    rows = [{"id": i, "text": f"row {i} of {{many}}"} for i in range(2500)]
    text = f"Here it is:\n{json.dumps({'request': 'store', 'rows': rows})}\nDone."
    assert len(text) > 100_000
    assert best_ms(text) < 10
    assert best_ms('It\'s {so} "fine" to {talk}. ' * 4000) < 10


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "piece",
    [
        "{",
        '{"',
        '{"a":',
        '{"a":"',
        '{"a" 1}',
        '{"a":{"a":}}',
        '{"a":1} {"a" 1} ',
        '{"\\"',
        "{'",
        "{ ",
        '{"a":["',
        "{a:",
    ],
)
def test_no_text_costs_more_than_its_length(piece: str) -> None:
    took_ms = dict[int, float]()

    def read(size: int) -> None:
        took_ms[size] = min(best_ms(piece * (size // len(piece)), 1), took_ms.get(size, math.inf))

    assert growth(read, 30_000) < LINEAR
    assert took_ms[120_000] < 2000


def test_escaped_quotes_without_end_cost_no_more() -> None:
    assert best_ms('{"a' + '\\"' * 200_000) < 100
