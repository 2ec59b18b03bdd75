"""Tools of every kind. Each writes its effects to the witness file under the order number that the model chose.

`manner` says how the first call of an order misbehaves. Later calls of the same order behave well, so that a case ends.
The exception is the manner `mute`, which fails in each attempt under the same key, so that the model gives the call up.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from msgspec import Struct

import gesta
from benchmarks.faults.striking import LINGER_S, Striker
from benchmarks.faults.witness import Line, Witness

SLOW_S, BOUND_S, BRIEF_S = 0.16, 0.08, 0.001
EXPIRES_S = 0.05
SUBPROCESS = """
import sys, time
from pathlib import Path
from benchmarks.faults.witness import Line, Witness
if sys.stdin.read(1) == "g":
    witness, order, key, token = Witness(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    time.sleep(0.05)
    witness.act(Line(what="effect", order=order, key=key, tool="spawn", effect="once", token=token))
    witness.tell(Line(what="over", order=order, key=key, tool="spawn", token=token))
"""


class Panic(BaseException):
    """An exception like those that libraries in other languages raise: no subclass of `Exception`."""


class Kind(Struct, frozen=True, kw_only=True):
    """The options of a kind of tool."""

    effect: str = "once"
    threaded: bool = True
    reconciles: str = ""
    """What its `reconcile` function does if nothing was done; empty if there is no such function.

    `looks`: it returns NotDone. `voids`: it also makes the key void, so that nothing can be done under it later.
    """
    on_doubt: str = "ask"
    approval: bool = False
    expires_s: float | None = None
    timeout_s: float | None = None
    manners: tuple[str, ...] = ("plain",)


DOUBTFUL = ("plain", "plain", "reset", "late", "unsure", "panic", "exit")
"""Manners for tools whose failure comes after the effect, so that nobody knows whether it happened."""
KINDS = {
    "look": Kind(effect="pure", manners=("plain", "plain", "panic")),
    "glance": Kind(effect="pure", threaded=False),
    "store": Kind(effect="idempotent", manners=("plain", "plain", "reset", "refuse", "mute")),
    "put": Kind(effect="idempotent", threaded=False, manners=("plain", "plain", "late", "mute")),
    "creep": Kind(effect="idempotent", timeout_s=BOUND_S, manners=("slow", "plain")),
    "pay": Kind(reconciles="looks", manners=DOUBTFUL),
    "wire": Kind(threaded=False, reconciles="looks", manners=DOUBTFUL),
    "slow": Kind(timeout_s=BOUND_S, reconciles="looks", manners=("slow", "slow", "plain")),
    "post": Kind(on_doubt="tell", manners=DOUBTFUL),
    "mail": Kind(threaded=False, on_doubt="tell", manners=(*DOUBTFUL, "refuse")),
    "cable": Kind(threaded=False, manners=("plain", "plain", "reset")),
    "wrap": Kind(manners=("plain", "plain", "late", "refuse")),
    "sign": Kind(threaded=False, approval=True, reconciles="looks"),
    "seal": Kind(approval=True, expires_s=EXPIRES_S),
    "scrap": Kind(threaded=False, reconciles="voids", manners=("plain", "reset")),
    "spawn": Kind(reconciles="looks"),
    "book": Kind(effect="transactional", manners=("plain", "rollback", "plain", "rollback", "exit", "panic")),
}
VERSION_2 = {"pay": "pure", "wire": "idempotent", "cable": "pure", "store": "once", "put": "pure"}
"""Effect policies that the next release of the agent declares. Calls begun under the old policies keep them."""


class Tools:
    """Makes the tools of one process."""

    def __init__(self, witness: Witness, striker: Striker, record: str, version: int = 1) -> None:
        self.witness, self.striker, self.record, self.version = witness, striker, record, version

    def make(self, name: str) -> gesta.Tool:
        """Return a new tool of the kind with this name."""
        kind = KINDS[name]
        effect: Any = VERSION_2.get(name, kind.effect) if self.version > 1 else kind.effect
        function = self._spawning() if name == "spawn" else self._function(name, kind, effect)
        function.__name__ = function.__qualname__ = name
        options: dict[str, Any] = {"effect": effect, "approval": kind.approval, "on_doubt": kind.on_doubt}
        if kind.reconciles and self.version == 1:
            options["reconcile"] = self._reconcile(voids=kind.reconciles == "voids")
        options |= {"timeout_s": kind.timeout_s} if kind.timeout_s else {}
        options |= {"expires_s": kind.expires_s} if kind.expires_s else {}
        return gesta.tool(function, **options)

    def _function(self, name: str, kind: Kind, effect: str) -> Callable[..., Any]:
        if effect == "transactional":
            return self._booking(name)
        if kind.threaded:

            def called(order: int, context: gesta.Context, manner: str = "plain") -> str:
                """Carry an order out."""
                line, manner = self._begin(name, effect, order, context, manner)
                try:
                    self.striker.pause("in a tool", name)
                    time.sleep(SLOW_S if manner == "slow" else BRIEF_S)
                    self._act(line, manner)
                    self.striker.pause("after an effect", name)
                    return self._end(line, manner)
                finally:
                    self._over(line)

            return called

        async def awaited(order: int, context: gesta.Context, manner: str = "plain") -> str:
            """Carry an order out."""
            line, manner = self._begin(name, effect, order, context, manner)
            try:
                if self.striker.reach("in a tool", name):
                    await anyio.sleep(LINGER_S)
                await anyio.sleep(BRIEF_S)
                self._act(line, manner)
                if self.striker.reach("after an effect", name):
                    await anyio.sleep(LINGER_S)
                await anyio.sleep(BRIEF_S)
                return self._end(line, manner)
            finally:
                self._over(line)

        return awaited

    def _begin(self, name: str, effect: str, order: int, context: gesta.Context, manner: str) -> tuple[Line, str]:
        attempt = int(context.explain_id.rpartition(".")[2])
        line = Line(
            what="begun",
            order=order,
            tool=name,
            effect=effect,
            key=context.key,
            run=context.run,
            attempt=attempt,
            token=self.witness.token(),
        )
        mine = [each for each in self.witness.lines() if each.what == "begun" and each.order == order]
        stays = effect == "transactional" or manner == "mute"
        earlier = any(each.key != context.key or not stays for each in mine)
        self.witness.tell(line)
        return line, "plain" if earlier else manner

    def _act(self, line: Line, manner: str) -> None:
        if manner == "refuse":
            raise ConnectionRefusedError("the provider did not take the connection")
        if not self.witness.act(changed(line, "effect")):
            raise ValueError("this key is void")

    def _end(self, line: Line, manner: str) -> str:
        match manner:
            case "reset" | "mute":
                raise ConnectionResetError("the provider's answer was lost")
            case "late":
                raise TimeoutError("the provider did not answer in time")
            case "unsure":
                raise gesta.InDoubt("nobody knows")
            case "panic":
                raise Panic("rust")
            case "exit":
                sys.exit(3)
        return f"ok {line.order}."

    def _over(self, line: Line) -> None:
        self.witness.tell(changed(line, "over"))

    def _booking(self, name: str) -> Callable[..., Any]:
        def book(order: int, context: gesta.Context, manner: str = "plain") -> str:
            """Book."""
            line, manner = self._begin(name, "transactional", order, context, manner)
            try:
                schema = self.record.partition("&schema=")[2]
                self.striker.pause("in a transaction", name)
                if manner == "rollback" and not schema:
                    with suppress(Exception):  # ignores the error, as a careless tool does
                        context.sql("CREATE TABLE IF NOT EXISTS slots(slot INTEGER PRIMARY KEY)")
                        context.sql("INSERT INTO slots VALUES(1)")
                        context.sql("INSERT OR ROLLBACK INTO slots VALUES(1)")
                if schema:
                    context.sql("INSERT INTO public.bookings VALUES($1, $2, $3)", (schema, str(order), context.key))
                else:
                    context.sql("CREATE TABLE IF NOT EXISTS bookings(booked TEXT, key TEXT)")
                    context.sql("INSERT INTO bookings VALUES(?, ?)", (str(order), context.key))
                self.striker.pause("in a transaction", name)
                return self._end(line, manner)
            finally:
                self._over(line)

        return book

    def _spawning(self) -> Callable[..., Any]:
        def spawn(order: int, context: gesta.Context, manner: str = "plain") -> str:
            """Start a program that carries an order out."""
            line, _ = self._begin("spawn", "once", order, context, manner)
            inner = self.witness.token()
            command = [sys.executable, "-c", SUBPROCESS, str(self.witness.path), str(order), context.key, inner]
            popen: Any = getattr(context, "popen", subprocess.Popen)
            try:
                with popen(command, stdin=subprocess.PIPE) as child:
                    self.witness.tell(changed(line, "begun", token=inner, process=child.pid))
                    child.stdin.write(b"g")
                    child.stdin.close()
                    self.striker.pause("in a tool", "spawn")
                    if child.wait(10):
                        raise ValueError("the program failed")
                return f"ok {order}."
            finally:
                self._over(line)

        return spawn

    def _reconcile(self, *, voids: bool) -> Callable[[str], Any]:
        def settled(key: str) -> Any:
            done = [line for line in self.witness.lines() if line.what == "effect" and line.key == key]
            if done:
                return gesta.Done(f"ok {done[0].order}.")
            if voids and self.witness.void(key):
                try:
                    return gesta.NotDone(void=True)
                except TypeError:  # version 0.1.0
                    return gesta.Unknown()
            return gesta.NotDone() if not voids else gesta.Unknown()

        return settled


def changed(line: Line, what: Any, **others: Any) -> Line:
    """Return a line about the same call with another `what`, without time and process."""
    return msgspec.structs.replace(line, what=what, at=0.0, **({"process": 0} | others))
