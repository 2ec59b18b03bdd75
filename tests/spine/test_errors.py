"""An error says what was found, and catching one catches those below it."""

import gesta.errors
from gesta.errors import BrokenRecord, GestaError, NoRun, RecordError, message_of, nearest
from gesta.text.redactor import SECRETS


def test_the_nearest_word_is_offered_and_nothing_where_no_word_is_near() -> None:
    assert nearest("tolls", ["tools", "name"]) == " Did you mean 'tools'?"
    assert nearest("xyz", ["tools", "name"]) == ""


def test_the_tree_in_the_docstring_has_every_error_that_is_raised_on_purpose() -> None:
    errors = {name: each for name, each in vars(gesta.errors).items() if isinstance(each, type)}
    own = {name for name, each in errors.items() if issubclass(each, GestaError)}
    assert gesta.errors.__doc__ is not None
    assert {name for name in own if name not in gesta.errors.__doc__} == set()


def test_an_error_is_caught_by_the_one_above_it() -> None:
    assert issubclass(BrokenRecord, RecordError)
    assert issubclass(NoRun, GestaError)
    assert not issubclass(NoRun, RecordError)


def test_no_error_tells_a_secret() -> None:
    SECRETS.add("token", "sk-0123456789abcdef")
    assert "sk-0123456789abcdef" not in str(GestaError("refused sk-0123456789abcdef"))


def test_an_error_whose_message_cannot_be_read_has_none() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert message_of(Broken()) == ""
