"""The MCP server for agents: it lists them as tools, runs a turn for each call, and reports progress.

A turn is one message to an agent and all the work up to its answer. The record is the store of all turns. A message
has a key: if it is sent again under the same key, its turn is continued, and no second turn is begun.
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    CancelledNotificationParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequests,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

import gesta
from gesta.cli.options import quoted
from gesta.cli.talk import short
from gesta.errors import GestaError, NoRun, message_of, nearest
from gesta.events import Outcome
from gesta.record.options import MessageOptions
from gesta.record.record import Record
from gesta.serve.access import ANYBODY
from gesta.serve.bodies import Received, Refused, caller, kept, near
from gesta.serve.mcp.asked import Form, forms, take_in
from gesta.serve.mcp.calls import Call, Running, new_key, session_of
from gesta.serve.mcp.described import LONGEST, AgentTool, agent_tools
from gesta.serve.mcp.results import META, errored, result_of
from gesta.serve.service import LOGGER, Service
from gesta.text.tracing import trace_context

Context = ServerRequestContext[Any, Any]
Place = tuple[str, str]
"""Names a request: the id of its HTTP session, and the id of the request in the session."""

TOLD = (
    "Each tool is an agent that keeps a record. A message under a key runs once, however often it is sent. If a tool "
    "says that its turn waits for a person, tell the person what for, and call it again afterwards with the same key."
)
"""Instructions of the server, which the client's model reads."""
BEAT_S = 15.0
"""Seconds without progress after which the client is told that the turn is still running."""
LEFT = 1000
"""Greatest number of calls whose connection has ended that are remembered, because a cancellation may still come."""
FAILED = "The server failed; its log says why. What is on the record is safe."


class Said(Received, frozen=True, kw_only=True):
    """The arguments of a call of an agent. Their JSON Schema, with descriptions, is `described.TAKES`."""

    message: str
    session: str | None = None
    key: str | None = None


class AgentServer:
    """MCP server that offers agents as tools. A service holds these agents and the record."""

    def __init__(self, service: Service, texts: Mapping[str, str], *, local: bool) -> None:
        """Prepare the server.

        Args:
            texts: descriptions by agent name; see `agent_tools`.
            local: whether all clients are on this machine, so that they can open the file of the record.
        """
        self._service, self._local = service, local
        self._tools = agent_tools(list(service.agents.values()), texts)
        self.running = Running()
        """Counts the calls that are not answered yet."""
        self._now: dict[Place, Call] = {}
        self._left: OrderedDict[Place, Call] = OrderedDict()
        self.server: Server[Any] = Server(
            "gesta",
            version=gesta.__version__,
            instructions=TOLD,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self.server.add_notification_handler("notifications/cancelled", CancelledNotificationParams, self._cancelled)

    async def _list(self, _: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        del params
        return ListToolsResult(tools=[each.tool for each in self._tools.values()])

    async def _call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        known = self._tools.get(params.name)
        if known is None:
            near_ = nearest(params.name, self._tools)
            raise MCPError(INVALID_PARAMS, f"No tool {params.name!r:.80}.{near_} There are: {', '.join(self._tools)}.")
        try:
            with self.running:
                return await self._turn(ctx, known, params)
        except Refused as refused:
            return errored(refused.message)
        except GestaError as failure:
            return errored(self._unplaced(ctx, message_of(failure)))
        except Exception as failure:  # noqa: BLE001 - whatever it was, the client is answered
            LOGGER.error("The call of %s failed", params.name, exc_info=failure)
            return errored(FAILED)

    async def _turn(
        self, ctx: Context, known: AgentTool, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Run the turn of a client's message until it ends or waits, and return the result for the client.

        If the turn waits and the client can show forms, ask its user first, and continue the turn after an answer.
        """
        record, said = self._service.record, _said(params)
        key = said.key or _key(ctx, params) or new_key()
        session = said.session or session_of(client_of(ctx), key)
        options = MessageOptions(session=session, key=key, traceparent=caller_of(ctx))
        call = Call(record, known.agent, said.message, options)
        by, place = person(ctx), place_of(ctx)
        took = True
        if params.input_responses is not None:
            took = await self._take_in(call, params.input_responses, by)
        self._now[place] = call
        try:
            while True:
                self._service.turns.occupy()
                try:
                    outcome = await self._drive(ctx, call)
                finally:
                    self._service.leave(call)
                asked = forms(outcome.waiting, known.agent.name) if _may_ask(ctx, outcome) and took else []
                if not asked:
                    return result_of(known.agent, outcome, key, self._named(ctx, record))
                if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    requests: InputRequests = {form.name: ElicitRequest(params=form.params) for form in asked}
                    return InputRequiredResult(input_requests=requests, request_state=key)
                answers = [await self._elicited(ctx, form, by, record) for form in asked]
                took = any(answers)
        except anyio.get_cancelled_exc_class():
            self._left[place] = call
            while len(self._left) > LEFT:
                self._left.popitem(last=False)
            raise
        finally:
            self._now.pop(place, None)

    async def _drive(self, ctx: Context, call: Call) -> Outcome[Any]:
        """Run a turn until it ends or waits, report its progress to the client, and return its outcome."""
        async with call.start() as heard:
            try:
                while True:
                    text = "is at work"
                    with anyio.move_on_after(BEAT_S):
                        text = await heard.receive()
                    call.told += 1
                    await ctx.session.report_progress(call.told, None, text)
            except anyio.EndOfStream:
                return call.given()
            finally:
                call.leave()

    async def _take_in(self, call: Call, given: Mapping[str, Any], by: str) -> bool:
        """Record a person's answers to the forms that an earlier result sent to the client.

        Args:
            call: the call for which the forms were made.
            given: the client's responses, by the name of the form.
            by: name of the person.

        Returns:
            Whether an answer was recorded.
        """
        record, took = call.record, False
        with suppress(NoRun):
            run = await record.turns.run_of(call.session, call.agent.name)
            for form in forms(await record.waiting(run), call.agent.name):
                result = given.get(form.name)
                if isinstance(result, ElicitResult):
                    took = await take_in(record, form, result, by) or took
        return took

    async def _elicited(self, ctx: Context, form: Form, by: str, record: Record) -> bool:
        """Show a form to the user of the client, and record the answer. Return `False` if the user did not answer.

        Raises:
            Refused: the server is about to end.
        """
        result: ElicitResult | None = None
        async with anyio.create_task_group() as group:

            async def drained() -> None:
                await self._service.draining.wait()
                group.cancel_scope.cancel()

            group.start_soon(drained)
            params: ElicitRequestFormParams = form.params
            with suppress(MCPError, ValidationError):
                result = await ctx.session.elicit_form(params.message, params.requested_schema, ctx.request_id)
            group.cancel_scope.cancel()
        self._service.check()
        return result is not None and await take_in(record, form, result, by)

    async def _cancelled(self, ctx: Context, params: CancelledNotificationParams) -> None:
        """End the turn of a request that its client cancelled."""
        place = (connection_of(ctx), str(params.request_id))
        call = self._now.get(place) or self._left.pop(place, None)
        if call is not None and not self._service.draining.is_set():
            call.stop()
            reason = short(params.reason, LONGEST) if params.reason else None
            self._service.record.start(partial(call.cancel, person(ctx), reason))

    def _named(self, ctx: Context, record: Record) -> str:
        """Return the command-line option that names the record.

        Return an empty text if the record is not a file, or if the client must not see the path.
        """
        address = record.info.address
        shown = self._near(ctx) and "://" not in address and address != ":memory:"
        return f" --record {quoted(str(Path(address).resolve()))}" if shown else ""

    def _near(self, ctx: Context) -> bool:
        """Return whether a client is on this machine, so that it may see where the record is."""
        return self._local and client_of(ctx) == ANYBODY

    def _unplaced(self, ctx: Context, text: str) -> str:
        """Return the text of an error; for a client elsewhere, without the folder or server of the record."""
        address = self._service.address
        if self._near(ctx) or address in ("", ":memory:"):
            return text
        folders = {f"{each.parent}/" for each in (Path(address).resolve(), Path(address))} - {"./", "//"}
        told = text.replace(address, "the record") if "://" in address else text
        for folder in folders if "://" not in address else ():
            told = told.replace(folder, "")
        if told != text:
            LOGGER.warning("A client was answered with an error: %s", text)
        return told


def _said(params: CallToolRequestParams) -> Said:
    """Return the arguments of a call. Raises Refused if these do not fit the tool."""
    try:
        said = msgspec.convert(params.arguments or {}, Said)
    except msgspec.ValidationError as wrong:
        raise Refused(400, "BadRequest", f"{wrong}.{near(str(wrong), Said)}") from wrong
    for name, value in (("session", said.session), ("key", said.key)):
        if value is not None and not 0 < len(value) <= LONGEST:
            found = f"{name} has {len(value):,} characters, expected 1 to {LONGEST}."
            raise Refused(400, "BadRequest", f"{found} Leave it out, or give a shorter name.")
    kept(said.session or "")
    return said


def _key(ctx: Context, params: CallToolRequestParams) -> str | None:
    """Return the key of the message in a call that has no argument `key`; `None` if no key can be found.

    The key comes from an HTTP header, from `_meta`, or from an earlier result. If all are missing, it is made from the
    HTTP session and the request's id, if there is a session.
    """
    given = (cast("dict[str, Any]", params.meta or {}).get(f"{META}key"), params.request_state)
    header = ctx.request.headers.get("idempotency-key") if ctx.request is not None else None
    key = next((each for each in (header, *given) if isinstance(each, str) and 0 < len(each) <= LONGEST), None)
    if key is None and (connection := connection_of(ctx)):
        return f"mcp-{connection}-{ctx.request_id}"[:LONGEST]
    return key


def _may_ask(ctx: Context, outcome: Outcome[Any]) -> bool:
    """Return whether the turn waits and the client can show forms to its user."""
    able = ctx.session.client_capabilities
    if outcome.reason != "waiting" or outcome.queued or able is None or able.elicitation is None:
        return False
    if able.elicitation.form is None and able.elicitation.url is not None:
        return False
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request


def caller_of(ctx: Context) -> str | None:
    """Return the W3C trace context of a call, from `_meta` or an HTTP header; `None` if neither states it."""
    given = cast("dict[str, Any]", ctx.meta or {}).get("traceparent")
    if isinstance(given, str) and trace_context(given) is not None:
        return given
    return caller(ctx.request) if ctx.request is not None else None


def client_of(ctx: Context) -> str:
    """Return the name of the client whose token a request has; `ANYBODY` over stdio or without tokens."""
    return getattr(ctx.request.state, "client", ANYBODY) if ctx.request is not None else ANYBODY


def connection_of(ctx: Context) -> str:
    """Return the id of the HTTP session of a call; an empty text if the call has no session."""
    return ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""


def place_of(ctx: Context) -> Place:
    """Return the pair by which a later cancellation finds a call: the HTTP session and the id of the request.

    If the client cannot send a cancellation, the pair is unique: no cancellation matches it.
    """
    connection = connection_of(ctx)
    return (connection, str(ctx.request_id)) if connection or ctx.request is None else ("alone", new_key())


def person(ctx: Context) -> str:
    """Return the name to record for the user of a client, such as `editor via anna`.

    It is made of the name that the client states and, if the request has a token, the name that belongs to the token.
    """
    about = ctx.session.client_params
    name = short(about.client_info.name, 80) if about is not None else "mcp"
    client = client_of(ctx)
    return name if client == ANYBODY else f"{name} via {client}"
