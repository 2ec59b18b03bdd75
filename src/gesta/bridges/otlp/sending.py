"""Sends one OTLP message over HTTP, and returns how the receiver answered. Nothing is stored or repeated here.

Source: OTLP specification 1.11, "OTLP/HTTP Response", read 2026-11.
"""

import gzip
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import httpx2
import msgspec
from msgspec import Struct

from gesta.bridges.otlp import encoding, protobuf
from gesta.bridges.otlp.settings import Settings, Signal
from gesta.text.redactor import SECRETS

AGAIN = (429, 502, 503, 504)
"""Status codes after which the specification asks to send the same message again."""
REFUSED = (400, 413, 422)
"""Status codes which mean that the receiver cannot accept this message."""
EXCERPT = 300
ANSWER_BYTES = 64 * 1024
"""Greatest number of bytes of an answer that are read. A receiver may send more, or never end."""
PLAIN = {"accept-encoding": "identity"}  # so that a small answer cannot become a large one


class Sent(Struct, frozen=True):
    """A receiver's answer to a message, or the failure to send the message."""

    what: Literal["taken", "later", "refused", "closed"]
    """`taken`: the receiver accepted the message.

    `later`: send it again. `refused`: the receiver does not accept this message.

    `closed`: it accepts no message from this client at this address.
    """
    why: str = ""
    wait_s: float | None = None
    """Seconds that the receiver asks to wait before the next try; `None` if it named no time."""
    rejected: int = 0
    """Number of spans or points in an accepted message that the receiver refused for good."""


class Sender:
    """Sends messages to one receiver over HTTP."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._client = httpx2.AsyncClient(timeout=settings.timeout_s, follow_redirects=False)

    async def __aenter__(self) -> Self:
        """Return this object."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def send(self, signal: Signal, message: dict[str, Any]) -> Sent:
        """Send a message in OTLP's JSON form, as JSON or protobuf. A failure is returned, not raised.

        Args:
            signal: what the message contains: `traces` or `metrics`.
        """
        body, type_ = self._encoded(signal, message)
        headers = PLAIN | dict(self.settings.headers) | {"content-type": type_}
        if self.settings.gzip:
            body, headers["content-encoding"] = gzip.compress(body, mtime=0), "gzip"
        address = self.settings.traces if signal == "traces" else self.settings.metrics
        try:
            with anyio.fail_after(self.settings.timeout_s):  # the client itself bounds only each wait for bytes
                async with self._client.stream("POST", address, content=body, headers=headers) as response:
                    return self._read(signal, response, await _beginning(response))
        except TimeoutError:
            return Sent("later", f"no whole answer in {self.settings.timeout_s:g} s")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as failure:
            return Sent("later", SECRETS.message(f"{type(failure).__name__}: {failure}")[:EXCERPT])

    def _encoded(self, signal: Signal, message: dict[str, Any]) -> tuple[bytes, str]:
        if self.settings.json:
            return encoding.as_json(message), "application/json"
        made = protobuf.traces(message) if signal == "traces" else protobuf.metrics(message)
        return made, "application/x-protobuf"

    def _read(self, signal: Signal, response: httpx2.Response, data: bytes) -> Sent:
        status = response.status_code
        if 200 <= status < 300:
            number, why = self._rejected(signal, data)
            return Sent("taken", SECRETS.message(why)[:EXCERPT], rejected=number)
        text = data.decode(errors="replace") if "text" in response.headers.get("content-type", "") else ""
        said = SECRETS.message(text[:EXCERPT])
        why = f"status {status} {response.reason_phrase}{': ' if said else ''}{said}"
        if status in AGAIN:
            return Sent("later", why, _asked_s(response.headers.get("retry-after", "")))
        return Sent("refused" if status in REFUSED else "closed", why)

    def _rejected(self, signal: Signal, data: bytes) -> tuple[int, str]:
        if not self.settings.json:
            return protobuf.rejected(signal, data)
        try:
            partial = msgspec.json.decode(data or b"{}", type=dict[str, Any]).get("partialSuccess") or {}
            number = int(partial.get("rejectedSpans" if signal == "traces" else "rejectedDataPoints") or 0)
            return number, str(partial.get("errorMessage") or "")
        except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, RecursionError):
            return 0, ""


async def _beginning(response: httpx2.Response) -> bytes:
    """Return the answer of a receiver, at most its first `ANSWER_BYTES` bytes."""
    data = b""
    async for piece in response.aiter_raw():
        data += piece
        if len(data) >= ANSWER_BYTES:
            break
    return data[:ANSWER_BYTES]


def _asked_s(header: str) -> float | None:
    """Return the seconds that a Retry-After header states as a number or a date; `None` if it states neither."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, IndexError):
        return None
