"""Which exceptions leave nobody knowing whether an effect happened."""

import http.client
import smtplib
import socket
import ssl
import subprocess
import urllib.error
from typing import Any

import httpx2
import psycopg
import pytest

from gesta.errors import InDoubt
from gesta.function_tool.doubt import in_doubt
from gesta.perform.call_contents import result_of
from gesta.perform.threads import Returned


class APITimeoutError(Exception):
    """As a provider's own library names it."""


class Panic(BaseException):
    """As extensions written in Rust raise it."""


class Refusal(TimeoutError):
    """An author's own, of which the author knows more than its base says."""


DOUBTFUL = [
    TimeoutError(),
    ConnectionResetError(),
    ConnectionAbortedError(),
    BrokenPipeError(),
    EOFError(),
    http.client.IncompleteRead(b""),
    http.client.RemoteDisconnected(""),
    subprocess.TimeoutExpired("pay", 1),
    smtplib.SMTPServerDisconnected(),
    ssl.SSLEOFError(),
    urllib.error.URLError(TimeoutError()),
    httpx2.ReadTimeout(""),
    httpx2.WriteTimeout(""),
    httpx2.ReadError(""),
    httpx2.WriteError(""),
    httpx2.RemoteProtocolError(""),
    psycopg.OperationalError("the connection is lost"),
    psycopg.errors.AdminShutdown(),
    APITimeoutError(),
    InDoubt("who knows"),
    Panic(),
    SystemExit(),
    KeyboardInterrupt(),
    ExceptionGroup("two", [ValueError(), TimeoutError()]),
]

CERTAIN = [
    ConnectionRefusedError(),
    socket.gaierror(),
    ssl.SSLCertVerificationError(),
    urllib.error.URLError(ConnectionRefusedError()),
    urllib.error.URLError(socket.gaierror()),
    httpx2.ConnectTimeout(""),
    httpx2.ConnectError(""),
    httpx2.PoolTimeout(""),
    httpx2.UnsupportedProtocol(""),
    smtplib.SMTPConnectError(421, ""),
]

ANSWERS = [
    ValueError("no such account"),
    KeyError("account"),
    PermissionError(),
    psycopg.errors.UniqueViolation(),
    http.client.BadStatusLine("?"),
    ExceptionGroup("two", [ValueError(), KeyError()]),
]


@pytest.mark.parametrize("failure", DOUBTFUL, ids=lambda failure: type(failure).__name__)
def test_what_may_come_after_the_effect_is_a_doubt(failure: BaseException) -> None:
    assert in_doubt(failure)


@pytest.mark.parametrize("failure", CERTAIN, ids=lambda failure: type(failure).__name__)
def test_what_comes_before_anything_was_sent_is_certain(failure: BaseException) -> None:
    assert not in_doubt(failure)


@pytest.mark.parametrize("failure", ANSWERS, ids=lambda failure: type(failure).__name__)
def test_all_else_is_the_answer_of_the_tool(failure: BaseException) -> None:
    assert not in_doubt(failure)


def test_the_author_of_a_tool_may_know_better() -> None:
    assert in_doubt(Refusal())
    assert not in_doubt(Refusal(), (Refusal,))
    assert in_doubt(TimeoutError(), (Refusal,))


def chained(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except Exception as inner:
            raise RuntimeError("the payment failed") from inner
    except RuntimeError as outer:
        return outer


def test_what_caused_an_exception_counts_where_its_own_class_says_nothing() -> None:
    assert in_doubt(chained(httpx2.ReadTimeout("")))
    assert not in_doubt(chained(httpx2.ConnectTimeout("")))
    assert not in_doubt(chained(ValueError()))


def test_a_base_that_libraries_use_for_both_is_decided_by_its_cause() -> None:
    lost = ConnectionError("Connection aborted.", http.client.RemoteDisconnected(""))
    refused = ConnectionError("Max retries exceeded", ConnectionRefusedError())
    assert in_doubt(lost)
    assert not in_doubt(refused)
    assert in_doubt(ConnectionError("nothing more is known"))


def test_a_doubt_that_caused_an_exception_counts_also_in_a_group() -> None:
    assert in_doubt(chained(InDoubt("who knows")))
    assert in_doubt(chained(ExceptionGroup("two", [ValueError(), TimeoutError()])))
    assert not in_doubt(chained(ExceptionGroup("two", [ValueError()])))


def raised_alone(group: ExceptionGroup[Exception]) -> Exception:
    try:
        try:
            raise group
        except ExceptionGroup as caught:
            raise caught.exceptions[0]  # noqa: B904 - so that the group becomes the context of its first exception
    except Exception as outer:  # noqa: BLE001
        return outer


def test_an_exception_of_a_group_that_is_raised_alone_is_looked_at_once() -> None:
    assert not in_doubt(raised_alone(ExceptionGroup("one", [ValueError()])))
    assert not in_doubt(raised_alone(ExceptionGroup("one", [ConnectionError("", ConnectionRefusedError())])))
    assert in_doubt(raised_alone(ExceptionGroup("two", [ValueError(), TimeoutError()])))
    assert in_doubt(raised_alone(ExceptionGroup("all", [ExceptionGroup("two", [ValueError(), TimeoutError()])])))
    assert in_doubt(chained(raised_alone(ExceptionGroup("one", [TimeoutError()]))))


def test_a_gateway_that_had_no_answer_is_a_doubt() -> None:
    def refused(status: int) -> Exception:
        request = httpx2.Request("POST", "http://127.0.0.1/")
        return httpx2.HTTPStatusError("", request=request, response=httpx2.Response(status, request=request))

    assert [status for status in (400, 402, 409, 429, 500, 502, 503, 504) if in_doubt(refused(status))] == [502, 504]
    assert in_doubt(urllib.error.HTTPError("http://127.0.0.1/", 504, "", http.client.HTTPMessage(), None))


class Bare(Exception):
    """As a proxy whose object is gone."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name != "__notes__":
            return super().__getattribute__(name)
        raise RuntimeError(f"there is no {name} any more")


def test_an_exception_whose_attributes_raise_is_decided_by_the_rest() -> None:
    assert not in_doubt(Bare())
    assert in_doubt(type("BareTimeout", (Bare, TimeoutError), {})())
    told = result_of(Returned(failure=Bare()), None, 1)
    assert told.tool_result == "Bare"
    assert told.error is not None
    assert (told.error.type, told.error.message) == ("Bare", "")  # whether there is a traceback depends on the Python


def test_an_exception_that_caused_itself_is_looked_at_once() -> None:
    failure = RuntimeError()
    failure.__cause__ = failure
    assert not in_doubt(failure)


@pytest.mark.parametrize("module", [httpx2])
def test_every_exception_of_a_client_is_one_or_the_other(module: object) -> None:
    """Each class of the HTTP client has a place: a new one is to be thought about."""
    found = {
        name
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, httpx2.TransportError) and kind is not httpx2.TransportError
    }
    verdicts = {name: in_doubt(getattr(module, name)("")) for name in found}
    assert {name for name, doubt in verdicts.items() if not doubt} == {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "ProxyError",
        "UnsupportedProtocol",
    }
