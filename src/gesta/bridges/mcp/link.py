"""A link is one connection to a server, kept by a task of its own. A link begins once and ends once.

The task is shielded from cancellation, because it outlives the turns that use the connection; it ends when `close` is
called. A failure in the task is stored, not raised. The link also ends if the server ends; the next call then makes a
new link.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio.abc import TaskGroup

from gesta.bridges.mcp.sender import EVENT_BYTES, Kind, Sender
from gesta.bridges.mcp.spec import OLDER, Spec
from gesta.bridges.mcp.stderr import Tail
from gesta.errors import message_of
from gesta.events import LOGGER
from gesta.text.redactor import SECRETS

if TYPE_CHECKING:
    import mcp

PAGES = 100
"""Greatest number of pages read of one list of the server."""
CLOSED = (-32000, -32001)
"""Error codes after which nobody knows whether the server carried out a request: connection closed, and timeout."""
PARTING_S = 1.0
"""Seconds for which a closing link waits for its running calls."""
CLOSE_S = 10.0
"""Seconds after which a link that does not close by itself, for example because the server hangs, is cancelled."""
LISTS = ("tools", "resources", "prompts")
Asked = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | str]]
"""Answers a request of the server, given its method and parameters.

Returns the result, or a text that says why there is none.
"""


def library() -> Any:
    """Import the library `mcp` and return it, with its logging silenced in programs that have not set up logging."""
    import mcp
    import mcp.client.stdio
    import mcp.client.streamable_http

    if not (own := logging.getLogger("mcp")).handlers:
        own.addHandler(
            logging.NullHandler()
        )  # else Python prints its errors, with tracebacks, in a program without logging
    logging.getLogger("mcp.client.stdio").addFilter(no_odd_line)
    return mcp


def no_odd_line(told: logging.LogRecord) -> bool:
    """Return whether a record of the library's log is not a traceback about a line that is not a message.

    A link warns of such lines once.
    """
    return not (told.exc_info and isinstance(told.exc_info[1], ValueError))


@cache
def tool_results() -> Any:
    """Return what reads a result of `tools/call`."""
    types = library().types
    return type(types.server_result_adapter)(types.CallToolResult | types.InputRequiredResult)


class Link:
    """One connection to a server, from its start to its end."""

    def __init__(self, spec: Spec, asked: Asked) -> None:
        self.spec, self._asked = spec, asked
        self.client: mcp.Client
        self.tasks: TaskGroup
        """The tasks of running calls; they end after the connection."""
        self.began = anyio.Event()
        """Set when the link can be used, or has failed to begin."""
        self.ended = anyio.Event()
        self.over = False
        """Whether the link has ended or is closing, so that no further request can be sent."""
        self.changed = True
        """Whether the server's lists may have changed since they were last read."""
        self.failure: BaseException | None = None
        self.flown: set[anyio.Event] = set()
        """For each running call, an event that is set when the call ends."""
        self.tail: Tail | None = None
        self.sender: Sender | None = None
        self._closing = anyio.Event()
        self._opening = False
        self._scope = anyio.CancelScope(shield=True)
        self._listening = self._warned = False

    @property
    def modern(self) -> bool:
        """Whether the server speaks the newer protocol, in which it returns questions as results of a call."""
        return self.client.session.initialize_result is None

    def close(self) -> None:
        """End the connection. If the connection is still being started, cancel the start."""
        self.over = True
        self._closing.set()
        if self._opening and not self.began.is_set():
            self._scope.cancel()

    def _spawned(self) -> None:
        """Allow `close` to cancel the start of the link from now on.

        If the start were cancelled earlier, a server process that is just being started would be left running.
        """
        self._opening = True
        if self._closing.is_set():
            self._scope.cancel()

    async def keep(self) -> None:
        """Begin the connection, and keep it until it is closed or lost. The link's task runs this method."""
        try:
            with self._scope:
                async with anyio.create_task_group() as self.tasks, self._opened() as self.client:
                    self.began.set()
                    await self._closing.wait()
                    self.over = True
                    self._scope.deadline = anyio.current_time() + CLOSE_S
                    with anyio.move_on_after(
                        PARTING_S
                    ):  # so that a call which was cancelled is cancelled at the server
                        for flown in list(self.flown):
                            await flown.wait()
        except Exception as failure:  # noqa: BLE001 - reported to the tasks that wait for the connection or a call
            self.failure = failure
        finally:
            self.over = True
            self.began.set()
            self.ended.set()

    @asynccontextmanager
    async def _opened(self) -> "AsyncIterator[mcp.Client]":
        lib, spec = library(), self.spec
        transport = self._http(lib) if spec.url else self._stdio(lib)
        try:
            own = version("gesta")
        except PackageNotFoundError:
            own = "0"
        client = lib.Client(
            transport,
            client_info=lib.Implementation(name="gesta", version=own),
            elicitation_callback=self._elicit if spec.elicitation else None,
            sampling_callback=self._sample if spec.sampling else None,
            message_handler=self._heard,
            mode="legacy" if spec.protocol == OLDER else "auto",
            cache=None,
        )
        async with client:
            yield client

    @asynccontextmanager
    async def _stdio(self, lib: Any) -> AsyncIterator[Any]:
        command, *args = self.spec.command
        given = lib.StdioServerParameters(
            command=command,
            args=args,
            env=dict(self.spec.env),
            cwd=self.spec.cwd or None,
            encoding_error_handler="replace",
        )
        self.tail = Tail()
        try:
            async with lib.stdio_client(given, errlog=self.tail.file) as (reading, writing):
                self.tail.close()
                self._spawned()
                yield Watched(reading, self.close, self._fits), writing
        finally:
            self.tail.close()

    @asynccontextmanager
    async def _http(self, lib: Any) -> AsyncIterator[Any]:
        opened = lib.client.streamable_http.streamable_http_client
        async with Sender(self.spec, lib.types, self._odd) as self.sender:
            transport = opened(self.spec.url, http_client=self.sender, max_sse_event_size=EVENT_BYTES)
            async with transport as (reading, writing):
                self._spawned()
                yield Watched(reading, self.close, self._fits), writing

    async def _heard(self, message: Any) -> None:
        if isinstance(message, Exception):
            self._odd()
        if getattr(message, "method", "").endswith("/list_changed"):
            self.changed = True

    def _odd(self) -> None:
        """Warn, once, that the server writes what is left out."""
        if not self._warned:
            self._warned = True
            LOGGER.warning("The MCP server %s writes lines that are not messages; they are left out.", self.spec.shown)

    def _fits(self, message: Any) -> bool:
        """Return whether a message is not a notification, or one that fits the protocol. Warn of others, once."""
        lib, said = library(), getattr(message, "message", None)
        if not isinstance(said, lib.types.JSONRPCNotification):
            return True
        version = self.client.session.protocol_version if self.began.is_set() else None
        try:
            lib.types.methods.parse_server_notification(said.method, version or OLDER, said.params)
        except KeyError:  # a notification of an extension
            return True
        except ValueError:
            self._odd()
            return False
        return True

    async def _elicit(self, _context: Any, params: Any) -> Any:
        return await self._answer("elicitation/create", params, "ElicitResult")

    async def _sample(self, _context: Any, params: Any) -> Any:
        return await self._answer("sampling/createMessage", params, "CreateMessageResult")

    async def _answer(self, method: str, params: Any, result: str) -> Any:
        types = library().types
        found = await self._asked(method, plain(params))
        if isinstance(found, str):
            return types.ErrorData(code=types.INVALID_REQUEST, message=found)
        return getattr(types, result).model_validate(found)

    async def listed(self) -> dict[str, list[dict[str, Any]]]:
        """Return the server's lists: `tools`, `resources`, `resource_templates` and `prompts`.

        Raises:
            Exception: the server does not answer, or its answer breaks the protocol.
        """
        self._listen()
        self.changed = False
        session, can = self.client.session, self.client.server_capabilities
        found: dict[str, list[dict[str, Any]]] = {"tools": [], "resources": [], "resource_templates": [], "prompts": []}
        if can.tools is not None:
            found["tools"] = await self._pages(session.list_tools, "tools")
        if can.resources is not None:
            found["resources"] = await self._pages(session.list_resources, "resources")
            found["resource_templates"] = await self._pages(session.list_resource_templates, "resource_templates")
        if can.prompts is not None:
            found["prompts"] = await self._pages(session.list_prompts, "prompts")
        return found

    async def _pages(self, ask: Callable[..., Awaitable[Any]], name: str) -> list[dict[str, Any]]:
        lib, found, cursor = library(), list[dict[str, Any]](), None
        for _ in range(PAGES):
            try:
                page = await ask(params=lib.types.PaginatedRequestParams(cursor=cursor))
            except lib.MCPError as failure:
                if failure.code == lib.types.METHOD_NOT_FOUND and name == "resource_templates":
                    return found
                raise
            found += [plain(each) for each in getattr(page, name)]
            if page.next_cursor is None or page.next_cursor == cursor:
                return found
            cursor = page.next_cursor
        LOGGER.warning(
            "The MCP server %s lists its %s on more than %s pages; the rest is left out.", self.spec.shown, name, PAGES
        )
        return found

    def _listen(self) -> None:
        """Subscribe to changes of the server's lists, if its protocol announces changes only to subscribers."""
        can = self.client.server_capabilities
        told = {f"{name}_list_changed": True for name in LISTS if getattr(getattr(can, name), "list_changed", None)}
        if self.modern and told and not self._listening:
            self._listening = True
            self.tasks.start_soon(self._listened, told)

    async def _listened(self, told: Mapping[str, Any]) -> None:
        try:
            async with self.client.listen(**told) as heard:
                async for _ in heard:
                    self.changed = True
        except Exception as failure:  # noqa: BLE001 - the next listing subscribes again
            LOGGER.debug("The MCP server %s tells no changes: %s", self.spec.shown, message_of(failure))
        finally:
            self._listening = False
            self.changed |= not self.over

    def kind_of(self, failure: BaseException) -> Kind | None:
        """Return how a request failed, such as `lost` (see `sender.Kind`).

        Return `None` if the server answered, with an error or against the protocol.
        """
        if not isinstance(failure, library().MCPError):
            return (
                "lost" if isinstance(failure, OSError | anyio.ClosedResourceError | anyio.BrokenResourceError) else None
            )
        if self.sender is not None and (kind := self.sender.kind_of(failure.data)) is not None:
            return kind
        return "lost" if failure.code in CLOSED else None

    def why(self) -> str:
        """Return the reason why the link did not begin, without secrets."""
        failures = [self.failure] if self.failure is not None else []
        while failures and isinstance(failures[0], BaseExceptionGroup):
            failures[:1] = failures[0].exceptions
        said = [message_of(each) or type(each).__name__ for each in dict.fromkeys(failures)]
        return SECRETS.message("; ".join(said) or "it ended")


class Watched:
    """A stream of messages that calls a function when the stream ends, and leaves out messages that do not fit."""

    def __init__(self, stream: Any, ended: Callable[[], None], fits: Callable[[Any], bool]) -> None:
        self._stream, self._ended, self._fits = stream, ended, fits

    async def receive(self) -> Any:
        """Return the next message. At the end of the stream, call the function and raise the stream's exception."""
        try:
            while not self._fits(message := await self._stream.receive()):
                pass
            return message
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended()
            raise

    def __aiter__(self) -> Self:
        """Return this object."""
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> Any:
        return await self._stream.__aexit__(*raised)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the wrapped stream."""
        return getattr(self._stream, name)


def plain(value: Any) -> Any:
    """Return an object of the `mcp` library as plain JSON values, without members that are `None`."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)
