"""A tool is made from a signature, and checks what a model writes."""

import inspect
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import partial, wraps
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gesta
from gesta.address import described
from gesta.errors import BadArguments, BadTool
from gesta.kinds import SystemContent, ToolResultContent
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
        """Accept a value."""
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
        (Person, {"name": "a", "age": -1}, "Input should be greater than or equal to 0, got -1 - at `$.value.age`"),
        (list[Person], [{"name": "a", "age": "3"}], "Input should be a valid integer, got '3' - at `$.value[0].age`"),
        (Person | None, {"age": 3}, "Field required - at `$.value.name`"),
        (list[Colour] | None, ["blue"], "Invalid enum value 'blue' - at `$.value[0]`, expected one of 'red'"),
        (dict[str, Colour], {"a.b": "blue"}, "Invalid enum value 'blue' - at `$.value[...]`, expected one of 'red'"),
        (bool, 1, "Expected `bool`, got `int` - at `$.value`"),
        (int, 5.5, "Expected `int`, got `float` - at `$.value`"),
        (str, 5, "Expected `str`, got `int` - at `$.value`"),
        (int, None, "Expected `int`, got `null` - at `$.value`"),
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


@pytest.mark.slow
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


def one_by_one(cities: int) -> Iterator[int]:
    yield cities


async def some_time(start: int, cities: int) -> AsyncIterator[int]:
    yield start + cities


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
        (lambda: gesta.tool(Shop().stock, name=""), "a name is 1 to 64 of a-z A-Z 0-9 _ -"),
        (lambda: gesta.tool(Shop().stock, timeout_s=0), "timeout_s is 0, expected seconds above 0, or None."),
        (
            lambda: gesta.tool(Shop().stock, timeout_s="3"),  # type: ignore[call-overload]
            "timeout_s is '3', expected seconds above 0, or None.",
        ),
        (lambda: gesta.tool(Shop().stock, approval="no"), "approval is 'no', expected True or False."),  # type: ignore[call-overload]
        (
            lambda: gesta.tool(Shop().stock, approval=lambda parcel: parcel > 42),  # type: ignore[call-overload]
            ", expected True or False. To ask a person about some calls only, write a hook that returns AskPerson: see",
        ),
        (lambda: gesta.tool(Shop().stock, strict=None), "strict is None, expected True or False."),  # type: ignore[call-overload]
        (lambda: gesta.tool(Shop().stock, reconcile="look"), "reconcile is 'look', expected a function."),  # type: ignore[call-overload]
        (lambda: gesta.tool(Shop().stock, certain=None), "certain is None, expected classes of exceptions."),  # type: ignore[call-overload]
        (lambda: gesta.tool(Shop().stock, expires_s=-1), "expires_s is -1, expected seconds above 0, or None."),
        (
            lambda: gesta.tool(Shop().stock, on_doubt="aks"),  # type: ignore[call-overload]
            "on_doubt is 'aks', expected one of 'ask', 'tell'. Did you mean 'ask'?",
        ),
        (lambda: gesta.tool(lambda city: city, name="city"), "parameter 'city' has no type to tell a model."),
        (lambda: gesta.tool(one_by_one), "Tool 'one_by_one' has a `yield`, so a call of it begins nothing."),
        (lambda: gesta.tool(partial(some_time, 3)), "Tool 'some_time' has a `yield`, so a call of it begins nothing."),
        (lambda: gesta.tool(len), "Tool 'len': <built-in function len> shows no parameters"),
        (lambda: gesta.tool(gesta.tool(Shop().stock)), "tool() takes a function, not Tool('stock', effect='once')."),
        (lambda: gesta.tool(3), "tool() takes a function, not 3."),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_what_to_write(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(BadTool) as wrong:
        make()
    assert told in str(wrong.value)


GOOGLE = """Look a parcel up.

Warning:
    Costs a cent.

Args:
    number: The number
        on the label.

Returns:
    Where it is.
"""
NUMPY = """Look a parcel up.

Parameters
----------
number : int, optional
    The number on the label.

Returns
-------
str
    Where it is.
"""
SPHINX = """Look a parcel up.

:returns: Where it is.
:param number: The number
    on the label."""


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (GOOGLE, "Look a parcel up.\n\nWarning:\n    Costs a cent.\n\nReturns:\n    Where it is."),
        (NUMPY, "Look a parcel up.\n\nReturns:\n    str: Where it is."),
        (SPHINX, "Look a parcel up.\n\nReturns:\n    Where it is."),
        ("Look a parcel up.\nArgs:\n    number: The number on the label.", "Look a parcel up."),
        ("Look a parcel up.\n\n:param int number: The number on the label.", "Look a parcel up."),
    ],
    ids=["google", "numpy", "sphinx", "no empty line", "typed"],
)
def test_three_styles_of_docstring_are_read_and_only_the_parameters_taken_out(text: str, description: str) -> None:
    assert read(text) == (description, {"number": "The number on the label."})


@pytest.mark.parametrize("text", ["", "Do.\n\nMore: of\n  it.", "Do.\n\nWarning:\n    Hot.", "Args:\n  x", ":param"])
def test_a_docstring_without_parameters_stays_as_it_is(text: str) -> None:
    assert read(text) == (text, {})


def test_a_list_in_the_text_of_a_parameter_stays_a_list() -> None:
    text = "Do.\n\nArgs:\n    how: One\n        of\n        - fast\n        - slow\n"
    assert read(text)[1] == {"how": "One of\n- fast\n- slow"}


scraps = st.sampled_from(
    ["Args:", "Parameters", "----", "Returns:", ":param x: y", ":type x: 1x", "x (1x): y", "Note:", ">>> f()", "\n    "]
)


@given(st.lists(scraps | st.text(max_size=4)).map("\n".join))
def test_no_docstring_raises_or_logs(text: str) -> None:
    heard: list[logging.LogRecord] = []
    ear = logging.Handler()
    ear.emit = heard.append  # type: ignore[assignment, method-assign]
    logging.getLogger("griffe").addHandler(ear)
    try:
        description, texts = read(text)
    finally:
        logging.getLogger("griffe").removeHandler(ear)
    assert not heard
    assert texts or description == text


def test_a_bound_tool_carries_the_texts_of_its_docstring() -> None:
    def parcel(number: int, how: Annotated[str, "The way."] = "air") -> str:
        return f"{number} {how}"

    parcel.__doc__ = GOOGLE.replace("Returns", "    how: Not shown.\n\nReturns")
    made = gesta.tool(parcel, effect="pure")
    shown = described(made)
    assert described(made) is shown
    assert shown.description.startswith("Look a parcel up.\n\nWarning:")
    assert shown.args_schema["properties"]["number"]["description"] == "The number on the label."
    assert shown.args_schema["properties"]["how"]["description"] == "The way."
    assert "description" not in made.args_schema["properties"]["number"]
    assert shown(3) == "3 air"


def test_a_tool_with_a_schema_of_its_own_is_described_and_passes_what_it_is_given() -> None:
    def remote(**arguments: Any) -> Any:
        return arguments

    bare = gesta.Tool(name="remote", description="Two\nlines.", function=remote)
    assert described(bare).args_schema == {}
    assert bare.arguments({"anything": "5"}) == {"anything": "5"}
    schema = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}
    closed = gesta.Tool(name="remote", args_schema=schema, function=remote)
    assert closed.arguments({"a": [1.0]}) == {"a": [1.0]}
    with pytest.raises(BadArguments) as wrong:
        closed.arguments({"b": 1})
    assert str(wrong.value) == (
        "Arguments of 'remote': Unknown argument - at `$.b`. Known: 'a'.; Missing argument - at `$.a`"
    )


@pytest.mark.parametrize("args", [None, [1], "x", 5, float("nan")])
def test_what_is_no_object_is_told(args: Any) -> None:
    with pytest.raises(BadArguments, match="Expected `object`, got"):
        tool_of(int).arguments(args)


def test_what_is_far_too_deep_or_too_long_is_told() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadArguments, match="RecursionError"):
        tool_of(list[int] | None).arguments({"value": {"a": deep}})
    with pytest.raises(BadArguments) as wrong:
        tool_of(Literal["a"]).arguments({"value": "x" * 1_000_000})
    assert len(str(wrong.value)) < 500
    assert str(wrong.value).endswith("- at `$.value`, expected one of 'a'")


class Line(pydantic.BaseModel):
    price: float


class Order(pydantic.BaseModel):
    lines: list[Line]
    before: "Order | None" = None


class Bill(pydantic.BaseModel):
    lines: list[Line]


def test_a_schema_is_complete_in_itself() -> None:
    @gesta.tool(effect="pure")
    def pay(order: Order, bill: Bill, colours: list[Colour], at: Point) -> None:
        """Pay."""

    refs: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            refs.extend(value for key, value in node.items() if key == "$ref")
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(child)

    walk(pay.args_schema)
    assert len(set(refs)) > 4
    for ref in refs:
        assert ref.removeprefix("#/$defs/") in pay.args_schema["$defs"], ref
    walk(refs)


def test_annotations_say_bounds_and_texts() -> None:
    @gesta.tool(effect="pure")
    def buy(
        number: Annotated[int, pydantic.Field(ge=1, description="How many.")],
        size: Annotated[int, msgspec.Meta(le=9, description="How large.")],
        code: Annotated[str, "The code.", pydantic.Field(pattern="^a")] = "a",
        until: date = date(2026, 1, 2),
        note: str = None,  # type: ignore[assignment]  # noqa: RUF013 - as many write it
    ) -> None:
        """Buy."""

    assert buy.args_schema == {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "minimum": 1, "description": "How many."},
            "size": {"type": "integer", "maximum": 9, "description": "How large."},
            "code": {"type": "string", "pattern": "^a", "description": "The code.", "default": "a"},
            "until": {"type": "string", "format": "date", "default": "2026-01-02"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["number", "size"],
        "additionalProperties": False,
    }
    with pytest.raises(BadArguments) as wrong:
        buy.arguments({"number": 0, "size": 10, "code": "b"})
    assert str(wrong.value) == (
        "Arguments of 'buy': Expected `int` >= 1 - at `$.number`; Expected `int` <= 9 - at `$.size`; "
        "Expected `str` matching regex '^a' - at `$.code`"
    )
    assert buy.arguments({"number": 1, "size": 1, "note": None}) == {"number": 1, "size": 1, "note": None}


async def nobody(_agent: object, _input: str) -> NoReturn:
    raise AssertionError("no tool here calls an agent")


CONTEXT = gesta.Context(
    record="r.gesta",
    run="r-1",
    session="s",
    user=None,
    call=nobody,
    key="0" * 64,
    explain_id="r-1.5",
    streaming=False,
    clock=lambda: datetime(2026, 1, 2, tzinfo=UTC),
    respond=print,
    cancelled=lambda: False,
)


class Adder:
    """Add one."""

    def __call__(self, number: int) -> int:
        return number + 1


class Waiter:
    async def __call__(self, number: int) -> int:
        """Add two."""
        return number + 2


async def three(number: int, more: int = 3) -> int:
    """Add three."""
    return number + more


@wraps(three)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return three(*args, **kwargs)


class Till:
    def four(self, number: int) -> int:
        """Add four."""
        return number + 4

    @classmethod
    def five(cls, number: int) -> int:
        """Add five."""
        return number + 5


@pytest.mark.parametrize(
    ("function", "name", "description", "result", "threaded"),
    [
        (Adder(), "Adder", "Add one.", 2, True),
        (Waiter(), "Waiter", "Add two.", 3, False),
        (three, "three", "Add three.", 4, False),
        (wrapped, "three", "Add three.", 4, True),
        (partial(three, more=9), "three", "Add three.", 10, False),
        (partial(partial(Till().four)), "four", "Add four.", 5, True),
        (Till.five, "five", "Add five.", 6, True),
    ],
    ids=["object", "async object", "async", "wrapped", "partial", "partial of a partial", "class method"],
)
async def test_whatever_is_called_with_types_is_a_tool(
    function: Any, name: str, description: str, result: int, threaded: bool
) -> None:
    made = gesta.tool(function, effect="pure")
    assert (made.name, made.description, made.threaded) == (name, description, threaded)
    assert await made.invoke(made.arguments({"number": 1}), CONTEXT) == result


async def test_a_function_that_blocks_runs_beside_the_loop_and_gets_its_context() -> None:
    @gesta.tool(effect="pure")
    def where(context: gesta.Context, city: str) -> tuple[str, str, bool]:
        return context.run, city, threading.current_thread() is threading.main_thread()

    assert await where.invoke(where.arguments({"city": "Rome"}), CONTEXT) == ("r-1", "Rome", False)


def test_a_tool_is_still_its_function() -> None:
    def forecast(city: str, days: int = 1) -> str:
        """Return the weather."""
        return f"{city} {days}"

    weather: Any = gesta.tool(forecast, name="weather")
    assert weather("Rome") == "Rome 1"
    assert (weather.__name__, weather.__doc__, weather.__module__) == ("forecast", "Return the weather.", __name__)
    assert str(inspect.signature(weather)) == "(city: str, days: int = 1) -> str"
    assert repr(weather) == "Tool('weather', effect='once')"
    asked = msgspec.structs.replace(weather, approval=True)
    assert (asked.approval, asked.__name__, asked("Rome")) == (True, "forecast", "Rome 1")


def test_types_written_as_text_are_found_also_in_closures() -> None:
    class Local(msgspec.Struct):
        a: int

    def take(value: "list[Local]") -> "Elsewhere":  # type: ignore[name-defined] # noqa: F821
        return Local(1)

    def lost(value: "Elsewhere") -> None:  # type: ignore[name-defined] # noqa: F821
        ...

    assert gesta.tool(take).arguments({"value": [{"a": 1}]}) == {"value": [Local(1)]}
    with pytest.raises(BadTool) as wrong:
        gesta.tool(lost)
    assert str(wrong.value) == (
        "Tool 'lost': type of 'value' not found (name 'Elsewhere' is not defined). Define it at module level."
    )


# What a type does not name is told to the model, at every depth.


class Row(msgspec.Struct):
    n: int


@dataclass
class Entry:
    n: int


class Post(TypedDict, total=False):
    n: int


class Item(pydantic.BaseModel):
    n: int


class Pair(NamedTuple):
    one: Row
    two: int = 0


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[Post]


class Tree(pydantic.BaseModel):
    n: int
    below: "list[Tree]" = []


class Shed(msgspec.Struct, array_like=True):
    n: int
    m: int = 0


class Other(pydantic.BaseModel):
    n: str = ""
    amount: int = 0


class Choice(pydantic.BaseModel):
    one: Item | Other


class OpenItem(pydantic.BaseModel, extra="allow"):
    n: int


def taking(kind: Any) -> gesta.Tool:
    def take(x: Any) -> str:
        return repr(x)

    take.__annotations__ = {"x": kind, "return": str}
    return gesta.tool(take, effect="once")


def of(container: Any, *types: Any) -> Any:
    return container[types]


NAMED = [Row, Entry, Post, Item]


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize(
    ("around", "value", "path"),
    [
        (lambda kind: kind, {"n": 1, "amount": 9}, "$.x.amount"),
        (lambda kind: kind | None, {"n": 1, "amount": 9}, "$.x.amount"),
        (lambda kind: of(list, kind), [{"n": 1}, {"n": 1, "amount": 9}], "$.x[1].amount"),
        (lambda kind: of(list, kind) | str, [{"n": 1}, {"n": 1, "amount": 9}], "$.x[1].amount"),
        (lambda kind: of(dict, str, kind), {"a b": {"n": 1, "amount": 9}}, "$.x.a b.amount"),
        (lambda kind: of(tuple, int, kind), [1, {"n": 1, "amount": 9}], "$.x[1].amount"),
        (lambda kind: of(dict, str, of(list, kind | None)), {"k": [None, {"n": 1, "amount": 9}]}, "$.x.k[1].amount"),
        (lambda kind: of(Annotated, of(list, kind), "Lines."), [{"n": 1, "amount": 9}], "$.x[0].amount"),
    ],
)
def test_a_member_that_no_type_names_is_told_to_the_model_at_every_depth(
    kind: type, around: Callable[[Any], Any], value: Any, path: str
) -> None:
    made = taking(around(kind))
    with pytest.raises(BadArguments) as caught:
        made.arguments({"x": value})
    assert str(caught.value) == f"Arguments of 'take': Unknown member - at `{path}`. Known: 'n'."
    assert made.arguments({"x": json.loads(json.dumps(value).replace(', "amount": 9', ""))})


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (Cat | Dog, {"type": "dog", "tricks": [{"n": 1, "m": 2}]}, "`$.x.tricks[0].m`. Known: 'n'."),
        (Cat | Dog, {"type": "cat", "lives": 9, "tricks": []}, "`$.x.tricks`. Known: 'type', 'lives'."),
        (Tree, {"n": 1, "below": [{"n": 2, "below": [{"n": 3, "o": 4}]}]}, "`$.x.below[0].below[0].o`."),
        (Pair, [{"n": 1, "note": 2}], "`$.x[0].note`. Known: 'n'."),
        (Shed, [1, 2, 3], "`$.x[2]`."),
        (Choice, {"one": {"n": 1, "amounts": 9}}, "`$.x.one.amounts`. Known: 'n'."),
        (Choice, {"one": {"n": 1, "amount": 9}}, "`$.x.one.amount`. Known: 'n'."),
        (Choice, {"one": {"n": "1", "amounts": 9}}, "`$.x.one.amounts`. Did you mean 'amount'?"),
    ],
)
def test_unions_recursive_types_and_those_that_are_arrays_take_no_more_than_they_name(
    kind: Any, value: Any, told: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        taking(kind).arguments({"x": value})
    assert f"Unknown member - at {told}" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (OpenItem, {"n": 1, "amount": 9}),
        (dict[str, Any], {"n": 1, "amount": {"b": 2}}),
        (list[OpenItem], [{"n": 1, "amount": 9}]),
        (Any, {"n": 1, "amount": 9}),
        (Cat | Dog, {"type": "cat", "lives": 9}),
        (Choice, {"one": {"n": "1", "amount": 9}}),
        (Choice, {"one": {"amount": 9}}),
        (Tree, {"n": 1, "below": [{"n": 2}]}),
    ],
)
def test_what_a_type_takes_stays_allowed(kind: Any, value: Any) -> None:
    assert taking(kind).arguments({"x": value})


def objects_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object of a schema that names its members, wherever it stands."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
            yield schema
        for each in schema.values():
            yield from objects_of(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from objects_of(each)


@pytest.mark.parametrize("kind", [*NAMED, Cat | Dog, Tree, Pair, list[Dog], dict[str, Tree], OpenItem])
def test_the_schema_closes_every_object_whose_type_is_closed(kind: Any) -> None:
    found = list(objects_of(taking(kind).args_schema))
    assert len(found) > 1
    assert {each.get("title"): each["additionalProperties"] for each in found} == {
        each.get("title"): each.get("title") == "OpenItem" for each in found
    }


def test_a_value_of_any_depth_and_width_is_refused_in_bounded_time_and_words() -> None:
    deep: dict[str, Any] = {"n": 1}
    for _ in range(20_000):
        deep = {"n": 1, "below": [deep]}
    with pytest.raises(BadArguments):
        taking(Tree).arguments({"x": deep})
    with pytest.raises(BadArguments) as caught:
        taking(Row).arguments({"x": {"n": 1, **{f"{n}" * 50: n for n in range(50_000)}}})
    assert str(caught.value).count("Unknown member") == 20
    assert len(str(caught.value)) < 11_000
    del deep


async def test_a_misspelt_member_goes_back_to_the_model_before_anybody_is_asked_to_approve_it() -> None:
    class Position(TypedDict):
        sku: str
        discount_percent: NotRequired[int]

    sent = list[Any]()

    def invoice(lines: list[Position]) -> str:
        """Send an invoice."""
        sent.append(lines)
        return "sent"

    invoice.__annotations__["lines"] = list[Position]
    made = gesta.tool(invoice, effect="once", approval=True)
    wrong, right = [{"sku": "a", "discount_pct": 50}], [{"sku": "a", "discount_percent": 50}]
    model = gesta.scripted(gesta.call("invoice", lines=wrong), gesta.call("invoice", lines=right), "Sent.")
    agent = gesta.Agent("seller", model=model, tools=[made])
    async with gesta.open() as record:
        outcome = await record.run(agent, "Invoice it.", session="s")
        (waiting,) = outcome.waiting
        call = (await record.state(outcome.run)).call(waiting.call)
        assert call is not None
        assert call.args == {"lines": right}
        results = [e.content for e in await record.read(outcome.run) if isinstance(e.content, ToolResultContent)]
    assert sent == []
    assert [each.tool_result for each in results] == [
        "Arguments of 'invoice': Unknown member - at `$.lines[0].discount_pct`. Did you mean 'discount_percent'?"
    ]


async def test_an_answer_with_a_member_that_its_type_does_not_name_is_corrected() -> None:
    model = gesta.scripted('{"n": 1, "below": [{"n": 2, "sum": 3}]}', '{"n": 1, "below": [{"n": 2}]}')
    agent = gesta.Agent("grower", model=model, output=Tree)
    async with gesta.open() as record:
        outcome = await record.run(agent, "Grow.", session="s")
        told = [e.content.value for e in await record.read(outcome.run) if isinstance(e.content, SystemContent)]
    assert outcome.value == Tree(n=1, below=[Tree(n=2)])
    assert [each.partition(" - ")[2] for each in told] == ["at `$.below[0].sum`. Known: 'n', 'below'."]


def test_a_long_value_that_a_validator_refuses_is_cut_with_a_mark() -> None:
    class Order(pydantic.BaseModel):
        items: list[int]

        @pydantic.model_validator(mode="after")
        def right(self) -> Any:
            raise ValueError("the sum is wrong")

    @gesta.tool(effect="pure")
    def book(order: Order) -> str:
        """Book."""
        return str(order)

    with pytest.raises(BadArguments, match=r"the sum is wrong, got .{99}… - at `\$\.order`"):
        book.arguments({"order": {"items": list(range(60))}})
