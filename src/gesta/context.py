"""What a tool is told about its call, and what it may answer when it is asked what became of one."""

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from gesta.errors import BadTool, GestaError
from gesta.kinds import Hit


def no_tables(*_: Any) -> list[tuple[Any, ...]]:
    """Refuse statements of a tool that is not transactional. Raises BadTool."""
    raise BadTool("context.sql is for transactional tools. Write @tool(effect='transactional').")


def no_subprocess(*_: Any, **__: Any) -> "subprocess.Popen[Any]":
    """Refuse to start a subprocess outside of an attempt. Raises GestaError."""
    raise GestaError("context.popen starts a subprocess of an attempt; there is none here. Use subprocess.Popen.")


class Context(Struct, frozen=True, kw_only=True):
    """What a tool is told about its call, in a parameter annotated `gesta.Context`; the model never sees it."""

    record: str
    """Address of the record."""
    run: str
    session: str
    user: str | None
    key: str
    """Idempotency key, 64 hex: the same however often this call is tried, and no other call's."""
    explain_id: str
    """Entry that explanations of this call hang under."""
    streaming: bool
    clock: Callable[[], datetime]
    respond: Callable[[str], None]
    """Sends an observation to whoever listens to the run."""
    call: Callable[[Any, str], Awaitable[Any]]
    """Has another agent answer in a run of its own, and gives its outcome; done once, however often this is tried."""
    found: Callable[[str, Sequence[Hit]], None] = lambda _query, _hits: None
    """Writes down a query and the passages that it found: the tool's result is explained by them."""
    sql: Callable[..., list[tuple[Any, ...]]] = no_tables
    """Of a transactional tool: runs a statement on tables in the record's own file, in the commit of the result."""
    popen: Callable[..., "subprocess.Popen[Any]"] = no_subprocess
    """Starts a subprocess as `subprocess.Popen` does; the attempt is not over before that has ended too."""
    cancelled: Callable[[], bool]
    """For functions in a thread: nobody can stop those from outside."""


class Done(Struct, frozen=True):
    """Answer of `reconcile`: the effect happened, with this result."""

    result: Any = None


class NotDone(Struct, frozen=True):
    """Answer of `reconcile`: the effect is not there. It is believed once the attempt is over."""

    void: bool = False
    """Whether the key can no longer act, as after a cancelled order: believed at once, and a new key is drawn."""


class Unknown(Struct, frozen=True):
    """Answer of `reconcile`: nobody can tell."""


Found = Done | NotDone | Unknown
Reconcile = Callable[[str], Found | Awaitable[Found]] | Callable[[str, Context], Found | Awaitable[Found]]
"""Idempotency key, and the context of the call where that is asked for, to what became of the effect."""
