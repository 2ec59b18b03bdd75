"""A tool is made from a signature, and checks what a model writes."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gesta
from gesta.address import described
from gesta.errors import BadArguments, BadTool
from gesta.tools.docstring import read


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class Named(TypedDict):
    name: str


class Size(msgspec.Struct):
    width: Annotated[int, msgspec.Meta(ge=1)]


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)


def tool_of(type_: Any) -> gesta.Tool:
    def take(value: Any) -> str:
        """Take a value."""
        return repr(value)

    take.__annotations__["value"] = type_
    return gesta.tool(take, effect="pure")


@pytest.mark.parametrize(
    ("type_", "given_", "expected"),
    [
        (str, "a", "a"),
        (int, 5, 5),
        (int, 5.0, 5),
        (float, 5, 5.0),
        (bool, True, True),
        (list[int], [1, 2], [1, 2]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (int | None, None, None),
        (Literal["a", "b"], "b", "b"),
        (Colour, "red", Colour.RED),
        (date, "2026-01-02", date(2026, 1, 2)),
        (datetime, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Point, {"x": 1}, Point(1)),
        (Named, {"name": "a"}, {"name": "a"}),
        (Size, {"width": 2}, Size(2)),
        (Person, {"name": "a", "age": 3}, Person(name="a", age=3)),
        (list[Person], [{"name": "a", "age": 3}], [Person(name="a", age=3)]),
        (Any, {"free": [1]}, {"free": [1]}),
    ],
    ids=str,
)
def test_arguments_become_what_the_annotation_says(type_: Any, given_: Any, expected: Any) -> None:
    assert tool_of(type_).arguments({"value": given_}) == {"value": expected}


@pytest.mark.parametrize(
    ("type_", "given_", "told"),
    [
        (int, "5", "Expected `int`, got `str` - at `$.value`"),
        (list[int], [1, "x"], "Expected `int`, got `str` - at `$.value[1]`"),
        (Literal["a", "b"], "c", "Invalid enum value 'c' - at `$.value`, expected one of 'a', 'b'"),
        (Size, {"width": 0}, "Expected `int` >= 1 - at `$.value.width`"),
        (Point, {}, "Object missing required field `x` - at `$.value`"),
        (Person, {"name": "a", "age": -1}, "Input should be greater than or equal to 0 - at `$.value.age`"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_told_with_its_path(type_: Any, given_: Any, told: str) -> None:
    with pytest.raises(BadArguments) as wrong:
        tool_of(type_).arguments({"value": given_})
    assert told in str(wrong.value)


def test_all_that_is_wrong_is_told_at_once_and_near_names_are_named() -> None:
    @gesta.tool
    def order(number: int, express: bool = False) -> None:
        """Order."""

    with pytest.raises(BadArguments) as wrong:
        order.arguments({"numer": 1, "express": "yes"})
    assert str(wrong.value) == (
        "Arguments of 'order': Unknown argument - at `$.numer`. Did you mean 'number'?; "
        "Expected `bool`, got `str` - at `$.express`; Missing argument - at `$.number`"
    )
    assert (order.effect, order.declared) == ("once", False)
    assert order.args_schema["required"] == ["number"]
    assert order.args_schema["properties"]["express"] == {"type": "boolean", "default": False}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text() | st.just("value"), json_values))
def test_nothing_but_bad_arguments_is_raised(args: dict[str, Any]) -> None:
    for type_ in (Point, Person, list[Size], Literal["a"]):
        with suppress(BadArguments):
            tool_of(type_).arguments(args)


def test_the_context_is_given_and_not_shown() -> None:
    @gesta.tool(effect="pure")
    def where(city: str, context: gesta.Context | None = None) -> str:
        """Where."""
        return city

    assert list(where.args_schema["properties"]) == ["city"]
    assert where.context_names == ("context",)
    assert where("Rome") == "Rome"


class Shop:
    def stock(self, item: str) -> int:
        """How many are there."""
        return len(item)


def test_methods_and_partials_are_tools() -> None:
    stock = gesta.tool(Shop().stock, effect="pure")
    assert (stock.name, list(stock.args_schema["properties"])) == ("stock", ["item"])

    def add(a: int, b: int) -> int:
        return a + b

    assert list(gesta.tool(partial(add, b=1), effect="pure").args_schema["properties"]) == ["a"]


def untyped(city) -> str:
    return city


def starred(*cities: str) -> None: ...


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: gesta.tool(untyped),
            "Tool 'untyped': parameter 'city' has no type to tell a model. Write `city: str`, or what it is.",
        ),
        (
            lambda: gesta.tool(starred),
            "Tool 'starred': a model names each argument, so `*cities: str` will not do. Write plain parameters.",
        ),
        (lambda: gesta.tool(Shop.stock), "Write tool(thing.stock), with an object."),
        (
            lambda: gesta.tool(Shop().stock, effect="pur"),  # type: ignore[call-overload]
            "effect is 'pur', expected one of 'pure', 'idempotent', 'once', 'transactional'. Did you mean 'pure'?",
        ),
        (
            lambda: gesta.tool(Shop().stock, efect="pure"),  # type: ignore[call-overload]
            "tool() has no option 'efect'. Did you mean 'effect'?",
        ),
        (lambda: gesta.tool(Shop().stock, name="a b"), "a name is 1 to 64 of a-z A-Z 0-9 _ -"),
        (lambda: gesta.tool(Shop().stock, timeout_s=0), "timeout_s is 0, expected seconds above 0, or None."),
        (lambda: gesta.tool(3), "tool() takes a function, not 3."),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_what_to_write(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(BadTool) as wrong:
        make()
    assert told in str(wrong.value)


GOOGLE = "Look a parcel up.\n\nMore.\n\nArgs:\n    number: The number\n        on the label.\n\nReturns:\n    Where."
NUMPY = "Look a parcel up.\n\nMore.\n\nParameters\n----------\nnumber : int\n    The number on the label.\n"
SPHINX = "Look a parcel up.\n\nMore.\n\n:param number: The number on the label.\n:returns: Where."


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX])
def test_three_styles_of_docstring_are_read(text: str) -> None:
    assert read(text) == ("Look a parcel up.\n\nMore.", {"number": "The number on the label."})


@given(st.text())
def test_no_docstring_raises(text: str) -> None:
    read(text)


def test_a_bound_tool_carries_the_texts_of_its_docstring() -> None:
    def parcel(number: int) -> str:
        return str(number)

    parcel.__doc__ = GOOGLE
    made = gesta.tool(parcel, effect="pure")
    shown = described(made)
    assert described(made) is shown
    assert shown.description == "Look a parcel up.\n\nMore."
    assert shown.args_schema["properties"]["number"]["description"] == "The number on the label."
    assert "description" not in made.args_schema["properties"]["number"]
