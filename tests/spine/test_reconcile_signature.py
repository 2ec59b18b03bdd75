"""The `reconcile` of a tool is checked where the tool is made: what it receives is a key and, if it likes, a context."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NewType, Protocol

import msgspec
import pytest
from tests.spine import postponed_reconciles

import gesta
from gesta.errors import BadTool
from gesta.function_tool.reconcile import arguments_for

if TYPE_CHECKING:
    from datetime import tzinfo as unseen

FORMS = "Write `(key: str)` or `(key: str, context: gesta.Context)`"
Key = NewType("Key", str)
CONTEXT: Any = object()


class HasRun(Protocol):
    run: str


class Shop:
    """Deps of a program."""


class Bank:
    """Payments, and lookups as methods."""

    def settled(self, key: str) -> gesta.NotDone:
        """Look a payment up."""
        return gesta.NotDone()

    async def later(self, key: str, context: gesta.Context) -> gesta.NotDone:
        """Look a payment up."""
        return gesta.NotDone()

    def __call__(self, key: str, context: gesta.Context[Shop]) -> gesta.NotDone:
        """Look a payment up."""
        return gesta.NotDone()


BANK = Bank()


def refund(number: int) -> str:
    """Pay the price of an order back."""
    return "paid"


def numbered(key: str, number: int) -> gesta.NotDone:
    return gesta.NotDone()


def defaulted(key: str, number: int = 0) -> gesta.NotDone:
    return gesta.NotDone()


def of_order(number: int) -> gesta.NotDone:
    return gesta.NotDone()


def of_context(context: gesta.Context) -> gesta.NotDone:
    return gesta.NotDone()


def three(key: str, context: gesta.Context, number: int) -> gesta.NotDone:
    return gesta.NotDone()


def named(key: str, *, number: int) -> gesta.NotDone:
    return gesta.NotDone()


def hidden(key: str, number: "unseen") -> gesta.NotDone:
    return gesta.NotDone()


def two_words(key: str, words: "Annotated[str | None, 'of a person']") -> gesta.NotDone:
    return gesta.NotDone()


@pytest.mark.parametrize(
    ("reconcile", "told"),
    [
        (numbered, "'number' of reconcile receives the context of the call, and has the type int"),
        (defaulted, "'number' of reconcile receives the context of the call, and has the type int"),
        (postponed_reconciles.numbered, "'number' of reconcile receives the context of the call, and has the type int"),
        (postponed_reconciles.keyed, "'key' of reconcile receives the idempotency key, and has the type bytes"),
        (hidden, "'number' of reconcile receives the context of the call, and has the type unseen"),
        (two_words, "'words' of reconcile receives the context of the call, and has the type Annotated[str | None,"),
        (of_order, "'number' of reconcile receives the idempotency key, and has the type int"),
        (of_context, "'context' of reconcile receives the idempotency key, and has the type gesta."),
        (three, "reconcile needs 'number', and receives the key and the context alone"),
        (lambda _key, _context, number: number, "reconcile needs 'number', and receives the key and the context alone"),
        (named, "reconcile needs 'number', and receives the key and the context alone"),
        (partial(three, number=7), None),
        (partial(numbered, "k"), "'number' of reconcile receives the idempotency key, and has the type int"),
        (Bank.settled, "reconcile is a method without an object. Write `reconcile=thing.method`."),
        ("look", "reconcile is 'look', expected a function."),
        (iter, "shows no parameters. Wrap it in a `def`."),
    ],
)
def test_a_reconcile_that_expects_anything_but_a_key_and_a_context_is_refused(reconcile: Any, told: str | None) -> None:
    doors: list[Callable[[], gesta.Tool]] = [
        lambda: gesta.tool(refund, reconcile=reconcile),
        lambda: gesta.tool(reconcile=reconcile)(refund),
        lambda: msgspec.structs.replace(gesta.tool(refund), reconcile=reconcile),
        lambda: gesta.Tool(name="refund", function=refund, reconcile=reconcile),
    ]
    for door in doors:
        if told is None:
            assert door().reconcile is reconcile
            continue
        with pytest.raises(BadTool) as wrong:
            door()
        assert told in str(wrong.value)
        assert str(wrong.value).startswith("Tool 'refund': ")
        assert FORMS in str(wrong.value) or told.endswith(".")


def aliased(key: Key, context: Annotated[gesta.Context[Shop] | None, "of the call"] = None) -> None: ...
def wide(key: Sequence[str] | None, context: HasRun) -> None: ...
def anything(key: object, context: Any, tries: int = 3) -> None: ...
def quoted(key: "str", context: "gesta.Context[unseen]") -> None: ...
def bare(key, context): ...
def plain(key: str) -> None: ...
def with_options(key: str, *, tries: int = 3, **more: Any) -> None: ...
def of_any_number(*of: Any) -> None: ...


@pytest.mark.parametrize(
    ("reconcile", "count"),
    [
        *((each, 2) for each in (aliased, wide, anything, quoted, bare, postponed_reconciles.fits, of_any_number)),
        *((each, 1) for each in (plain, with_options, Bank().settled, lambda _key: None, partial(numbered, number=7))),
        *((each, 2) for each in (Bank(), Bank().later, lambda _key, _context: None, partial(three, number=7))),
        (lambda _key, bank=BANK: bank, 1),
        (lambda _key, context=None: context, 2),
        (lambda: None, 0),
    ],
)
def test_a_reconcile_receives_the_key_and_if_it_has_a_place_for_it_the_context(reconcile: Any, count: int) -> None:
    assert gesta.tool(refund, reconcile=reconcile).reconcile is reconcile
    assert arguments_for(reconcile, "key", CONTEXT) == ("key", CONTEXT)[:count]


def test_types_of_the_function_around_a_reconcile_are_read() -> None:
    class Number(int):
        """A number of an order."""

    def local(key: str, number: "Number") -> Any: ...

    wrong: Any = local
    with pytest.raises(BadTool, match="'number' of reconcile"):
        gesta.tool(refund, reconcile=wrong)
