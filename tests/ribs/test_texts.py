"""A value in a JSON text is changed, and no other character; two texts are compared as JSON if they are JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.compare.forks import change
from gesta.compare.same import Difference, differences
from gesta.compare.texts import changed
from gesta.text.objects import json_of

INDENTED = '{\n  "a": 1,\n  "w": [1,\n    2]\n}\n'


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        ('{"price":64.90,"w":1}', "w", 2, '{"price":64.90,"w":2}'),
        ('{"id":12345678901234567890.5,"w":1}', "w", 2, '{"id":12345678901234567890.5,"w":2}'),
        ('{"e":1E+2,"n":-0,"w":1}', "w", 2, '{"e":1E+2,"n":-0,"w":2}'),
        (INDENTED, "a", 7, INDENTED.replace("1,", "7,", 1)),
        (INDENTED, "w 1", "x", INDENTED.replace("2]", '"x"]')),
        (INDENTED, "b", None, '{\n  "a": 1,\n  "w": [1,\n    2],\n  "b": null\n}\n'),
        ('{\t"a" : "\\u00e9\\/", "b":[ ] }', "b", True, '{\t"a" : "\\u00e9\\/", "b":true }'),
        ('{"a": {"w": 1, "v": NaN}}', "a w", 2, '{"a": {"w": 2, "v": NaN}}'),
        ('{"w":1,"w":2}', "w", 3, '{"w":1,"w":3}'),
        ('{"a}": "]\\"{", "w": 1}', "w", 2, '{"a}": "]\\"{", "w": 2}'),
        ('{"0": 1}', "0", 2, '{"0": 2}'),
        ('[1, {"007": 1}]', "1 007", 2, '[1, {"007": 2}]'),
        ('{"a": 1}', "w", {"b": [1, 2]}, '{"a": 1, "w": {"b": [1, 2]}}'),
        ('{"a":1}', "w", {"b": [1, 2]}, '{"a":1,"w":{"b":[1,2]}}'),
        ("{ }", "w", 1, '{"w": 1 }'),
        ('{"a": {}}', "a w", 1, '{"a": {"w": 1}}'),
        ('{"a": "é"}', "a", "ü", '{"a": "ü"}'),
        ('{"a": "\\u00e9"}', "a", "ü", '{"a": "\\u00fc"}'),
        ('{"a": "{\\"b\\":64.90,\\"w\\":1}"}', "a w", 2, '{"a": "{\\"b\\":64.90,\\"w\\":2}"}'),
    ],
)
def test_one_value_is_changed_and_nothing_else(text: str, path: str, value: Any, expected: str) -> None:
    assert changed(text, path.split(), value) == expected


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("no JSON", "a", "\"no JSON\" has no 'a'"),
        ('{"a": 1,}', "a", "has no 'a'"),
        ('{"a": 20}', "a of", "20 has no 'of'"),
        ('{"a": 20}', "b of", "{\"a\": 20} has no 'b'"),
        ("[1, 2]", "2", "[1, 2] has no '2'"),
        ("[1, 2]", "-1", "[1, 2] has no '-1'"),
        ('{"a": "plain"}', "a b", "\"plain\" has no 'b'"),
        ("[" * 100_000, "0", "has no '0'"),
    ],
)
def test_a_place_that_is_not_there_is_refused_with_what_was_found(text: str, path: str, said: str) -> None:
    with pytest.raises(LookupError) as refused:
        changed(text, path.split(), 1)
    assert said in str(refused.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4), st.text(max_size=3), values, st.data())
def test_a_changed_text_reads_as_the_changed_value(
    before: dict[str, Any], key: str, new: Any, data: st.DataObject
) -> None:
    indent = data.draw(st.sampled_from([None, 0, 2, "\t"]))
    text = json.dumps(before, indent=indent, ensure_ascii=data.draw(st.booleans()))
    assert json.loads(changed(text, [key], new)) == before | {key: new}
    if key in before:
        assert changed(changed(text, [key], new), [key], new) == changed(text, [key], new)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_a_text(number: str) -> None:
    before, after = (f'{{"v": {number}, "w": {place}}}' for place in (1, 2))
    assert list(differences(before, after)) == [Difference("$", before, after)]
    assert change(f"8.tool_result={number}").value == number
    with pytest.raises(ValueError, match="is not JSON"):
        json_of(f"[{number}]")


def test_numbers_that_json_has_are_read() -> None:
    assert list(differences('{"v": 1.50, "w": 1}', '{"v": 1.5, "w": 2}')) == [Difference("$.w", 1, 2)]
