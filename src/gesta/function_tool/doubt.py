"""Decides from the class of a tool's exception whether its effect is in doubt: it may or may not have happened.

Double payments happen most often after a read timeout: the request was sent, and only the reply is missing. Classes are
looked up by their names, because their libraries are not imported here. A class is looked up before its base classes,
and an exception before its cause. A class that is not listed leaves no doubt: the tool's author promises that such an
exception means no effect. An attempt is one execution of the tool for a call.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gesta.errors import InDoubt

# fmt: off
DOUBTFUL = frozenset(
    {
        "TimeoutError", "ReadTimeout", "WriteTimeout", "ReadTimeoutError", "ServerTimeoutError", "SocketTimeoutError",
        "Timeout", "TimeoutException", "APITimeoutError", "DeadlineExceeded", "TimeoutExpired", "ReadError",
        "WriteError", "CloseError", "RemoteProtocolError", "ProtocolError", "ChunkedEncodingError",
        "ServerDisconnectedError", "ClientOSError", "ClientPayloadError", "RemoteDisconnected", "APIConnectionError",
        "ConnectionClosed", "ConnectionClosedError", "ConnectionResetError", "ConnectionAbortedError",
        "BrokenPipeError", "BrokenResourceError", "EndOfStream", "IncompleteRead", "IncompleteReadError", "EOFError",
        "SSLEOFError", "SSLZeroReturnError", "CancelledError", "SMTPServerDisconnected",
        "ConnectionDoesNotExistError", "AdminShutdown", "CrashShutdown",
    }
)
"""Timeouts, resets and incomplete replies: the other side may have executed the request."""

CERTAIN = frozenset(
    {
        "ConnectionRefusedError", "ConnectTimeout", "ConnectTimeoutError", "ConnectionTimeoutError", "ConnectError",
        "NewConnectionError", "ClientConnectorError", "ClientConnectorDNSError", "ClientConnectorCertificateError",
        "gaierror", "herror", "NameResolutionError", "ServerNotFoundError", "UnknownHostError",
        "SSLCertVerificationError", "EndpointConnectionError", "SMTPConnectError", "CertificateError",
        "ClientSSLError", "PoolTimeout", "EmptyPoolError", "PoolError", "UnsupportedProtocol", "InvalidURL",
        "ProxyError",
    }
)
"""Failures before anything was sent: this attempt had no effect. (An earlier attempt may have had one.)"""
# fmt: on

GATEWAY = (502, 504)
"""HTTP statuses by which a gateway says that its server did not reply. Source: RFC 9110, sections 15.6.3 and 15.6.5."""

WEAK = frozenset(
    {
        *("ConnectionError", "OperationalError", "InterfaceError", "RequestException", "TransportError"),
        *("HTTPClientError", "RpcError", "AioRpcError", "SSLError"),
    }
)
"""Base classes of exceptions that leave a doubt and of exceptions that leave none. An exception of such a class leaves
a doubt, unless its cause decides otherwise."""


def in_doubt(
    failure: BaseException,
    certain: tuple[type[BaseException], ...] = (),
    *,
    again: bool = False,
    inside: tuple[BaseException, ...] = (),
) -> bool:
    """Return whether a tool that raised this exception may have had its effect.

    Args:
        certain: further exception classes that mean that no effect happened, according to the tool's author.
        again: whether an earlier attempt may have had the effect. If so, the effect is in doubt even if this attempt
            sent nothing.
        inside: the groups that contain the exception, which are not looked at again. `raise group.exceptions[0]` in an
            `except` makes a group the context of an exception in it.
    """
    weak = False
    for each in _chain(failure, inside):
        if isinstance(each, InDoubt):
            return True
        if isinstance(each, certain):
            return False
        if isinstance(each, BaseExceptionGroup):
            if any(in_doubt(one, certain, again=again, inside=(*inside, each)) for one in each.exceptions):
                return True
            continue
        if not isinstance(each, Exception) or _status(each) in GATEWAY:
            return True
        for name in (kind.__name__ for kind in type(each).__mro__):
            if name in CERTAIN:
                return again
            if name in DOUBTFUL:
                return True
            weak |= name in WEAK
    return weak


def _status(failure: BaseException) -> object:
    """Return the HTTP status in an exception, under any of the names that libraries use; `None` if it has none."""
    reply = _attribute(failure, "response", failure)
    return next((found for name in ("status_code", "status", "code") if (found := _attribute(reply, name))), None)


def _attribute(of: object, name: str, missing: object = None) -> Any:
    """Return an attribute of an object of another library; `missing` if there is none, or if reading it raises."""
    try:
        return getattr(of, name, missing)
    except Exception:  # noqa: BLE001 - it says no more than a missing one
        return missing


def _chain(failure: BaseException, without: Sequence[BaseException] = ()) -> Iterator[BaseException]:
    """Yield an exception, its cause, the cause of the cause, and so on, but none of those in `without`.

    Some libraries store a cause in an argument or in `reason`.
    """
    met = set(map(id, without))
    left = [failure]
    while left:
        each = left.pop(0)
        if id(each) in met:
            continue
        met.add(id(each))
        yield each
        hidden = each.__context__ if not each.__suppress_context__ else None
        kept = [_attribute(each, "reason"), *_attribute(each, "args", ())]
        found = [each.__cause__, hidden, *kept]
        left += [one for one in found if isinstance(one, BaseException)]
