"""Random agents. What an agent does follows only from the seed in its task, so every process makes the same agent.

A model is a function of the conversation. It repeats each call of its plan with the same arguments until a result says
that the order was carried out, because real models repeat themselves too. An order is one action with a number, which
the tools write to the witness file.
"""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import anyio
from msgspec import Struct
from tests.validators.chat_completions import history_violations

import gesta
from benchmarks.faults.striking import LINGER_S, Striker
from benchmarks.faults.tools import KINDS, Tools
from benchmarks.faults.witness import Witness
from gesta.tools.person import ask_person
from gesta.workflow.verbs import Verbs

TASK = re.compile(r"task=(\d+) base=(\d+) depth=(\d+)")
OK = re.compile(r"\bok (\d+)\.")
BELOW = ("clerk", "scout")
"""Names of the agents that other agents call as tools."""
REPEATS = 4
"""Number of calls of one order after which the model gives it up."""
STRIDES = (6000, 600, 80)
"""Number of orders reserved for one task, by depth. A task that it passes on uses a part of this range."""
ASKS = {"approval": "sign", "question": "ask_person", "doubt": "wrap", "child": "clerk"}
"""For each kind of wait, the tool that makes a run wait so."""


class Scene(Struct, frozen=True, kw_only=True):
    """The settings of a case, the same in all of its processes."""

    seed: int
    record: str
    """Address of the record."""
    witness: str
    """Path of the witness file."""
    sessions: int = 2
    turns: int = 1
    wants: str = ""
    """Name of a tool that is certain to be in the first session's plan."""
    backend: str = "asyncio"
    stream: bool = False
    programs: bool = False
    """Whether each session runs a workflow that calls the agents."""
    durability: str = "normal"
    manner: str = ""
    """How that tool is certain to behave."""
    rest_s: float = 0.02
    """Seconds for which workflows sleep.

    A run waits for a sleep of a second or more; a shorter sleep blocks the turn.
    """
    busy_s: float = 3.0
    """Seconds to wait for other writers of the record."""
    skipped: tuple[int, ...] = ()
    """Sessions whose first turn was pruned, so that its message is not sent again."""
    fresh: int = 0
    """Number of turns in sessions that nobody has used before, in addition to the others."""
    copied: bool = False
    """Whether the record was copied from elsewhere.

    Gesta cannot look up its processes then, so a person declares that they have ended.
    """
    lossy: bool = False
    """Whether the server may lose its last commits when it crashes, so that an answered turn may be open again."""
    marked: bool = False
    """Whether the record was restored from a backup, so that new orders and message keys are used."""


class Cast:
    """Makes the agents of one process."""

    def __init__(self, scene: Scene, witness: Witness, striker: Striker, version: int = 1) -> None:
        self.scene, self.witness, self.striker = scene, witness, striker
        self._tools = Tools(witness, striker, scene.record, version)
        lot = random.Random(scene.seed)
        self.policy = gesta.Policy(
            retry=gesta.Retry(first_wait_s=0.005),
            attempts=lot.choice((3, 3, 6)),
            parallel=lot.choice((1, 2, 8)),
            limits=gesta.Limits(requests=60, calls=120),
            budget=gesta.Budget(tokens=10**12) if lot.random() < 0.3 else None,
            when_busy=lot.choice(("queue", "raise", "raise")),
        )
        self.eager = lot.random() < 0.8
        """Whether models repeat a call until a result reports success, even if its outcome is said to be unknown."""

    def root(self) -> gesta.Agent:
        """Return the agent that gets the messages of the sessions."""
        scout = self._agent("scout")
        clerk = self._agent("clerk", scout)
        if not self.scene.programs:
            return self._agent("desk", clerk, scout)
        return gesta.Agent("desk", program=self._program(scout, clerk), policy=self.policy)

    def task(self, session: int, turn: int) -> str:
        """Return the message of a turn."""
        base = (session * 4 + turn + 1 + (400 if self.scene.marked else 0)) * STRIDES[0]
        return f"task={self.scene.seed} base={base} depth=0"

    def _agent(self, name: str, *below: gesta.Agent) -> gesta.Agent:
        own = [self._tools.make(each) for each in KINDS]
        others = [each.as_tool(description="Carries a task out.") for each in below]
        model = gesta.function(self._model(name, [each.name for each in below]), stream=self.scene.stream)
        return gesta.Agent(name, model=model, tools=[*own, *others, ask_person()], policy=self.policy)

    def _model(self, name: str, below: list[str]) -> Callable[..., Any]:
        async def think(messages: list[dict[str, Any]], _header: Any) -> Any:
            if self.striker.reach("in a model call", name):
                await anyio.sleep(LINGER_S)
            await anyio.sleep(0.0005)
            for violation in history_violations(messages)[:1]:
                self.witness.wrong(f"invalid history: {violation}")
            return self._reply(messages, below)

        return think

    def _reply(self, messages: list[dict[str, Any]], below: list[str]) -> Any:
        texts = [str(each["content"]) for each in messages if each["role"] == "tool"]
        done = {int(found) for text in texts for found in OK.findall(text)}
        closed = set() if self.eager else set(asked_of(messages, "outcome of this call is unknown"))
        made = [call for each in messages for call in each.get("tool_calls") or ()]
        counts: dict[int, int] = {}
        for call in made:
            counts[order_in(call)] = counts.get(order_in(call), 0) + 1
        tasks = dict.fromkeys(
            found for each in messages if each["role"] == "user" for found in TASK.findall(text_of(each))
        )
        for seed, base, depth in tasks:
            for calls in self.plan(int(seed), int(base), int(depth), below):
                left = [each for each in calls if order_of(each) not in done | closed]
                left = [each for each in left if counts.get(order_of(each), 0) < REPEATS]
                if left:
                    return [gesta.call(tool, **args) for tool, args in left]
        bases = " ".join(f"ok {base}." for _, base, _ in tasks)
        return f"All is done: {bases}"

    def plan(self, seed: int, base: int, depth: int, below: list[str]) -> list[list[tuple[str, dict[str, Any]]]]:
        """Return what a task asks for: a few rounds, each a list of calls to make at once."""
        lot, order, rounds = random.Random(f"{seed} {base} {depth}"), base, []
        wants, handed = self.scene.wants if depth == 0 and base <= STRIDES[0] else "", 0
        for turn in range(lot.randint(1, 2) if depth else lot.randint(2, 3)):
            names = lot.choices((*KINDS, "ask_person"), k=lot.choice((1, 2, 2, 3)))
            names += [lot.choice(below)] if below and lot.random() < 0.35 else []
            names += [wants] if wants and turn == 0 else []
            calls: list[tuple[str, dict[str, Any]]] = []
            for name in names:
                order += 1
                if name in below:
                    handed += 1
                    inner = base + STRIDES[depth + 1] * handed
                    calls.append((name, {"task": f"task={seed} base={inner} depth={depth + 1}"}))
                elif name == "ask_person":
                    calls.append((name, {"question": f"What of order={order}?"}))
                elif name in KINDS:
                    manner = lot.choice(KINDS[name].manners)
                    manner = self.scene.manner or manner if name == wants else manner
                    calls.append((name, {"order": order, "manner": manner}))
            rounds.append(calls)
        return rounds

    def _program(self, *agents: gesta.Agent) -> Callable[[Verbs, str], Any]:
        lot = random.Random(self.scene.seed + 1)
        asks, at_once = lot.random() < 0.6, lot.random() < 0.5

        async def run(verbs: Verbs, text: str) -> str:
            seed, base, _ = TASK.findall(text)[0]
            verbs.now("began")

            async def call(place: int, each: gesta.Agent) -> None:
                inner = int(base) + STRIDES[1] * (1 + place)
                await verbs.call(each, f"task={seed} base={inner} depth=1", each.name)

            self.striker.reach("before a sleep")
            await verbs.sleep("rest", self.scene.rest_s)
            if at_once:
                async with anyio.create_task_group() as group:
                    for place, each in enumerate(agents):
                        group.start_soon(call, place, each)
            else:
                for place, each in enumerate(agents):
                    await call(place, each)
            if asks:
                await verbs.ask("how many", f"What of order={int(base) + 1}?")
            return f"ok {base}."

        return run


def order_of(call: tuple[str, dict[str, Any]]) -> int:
    """Return the order number of a planned call; for a task that is passed on, its first order number."""
    return _order(call[1])


def order_in(call: dict[str, Any]) -> int:
    """Return the order number of a call in the form of Chat Completions; -1 if it has none."""
    try:
        return _order(json.loads(call["function"]["arguments"]))
    except (ValueError, TypeError):
        return -1


def _order(args: dict[str, Any]) -> int:
    if "order" in args:
        return int(args["order"])
    found = re.search(r"base=(\d+)|order=(\d+)", str(args.get("task") or args.get("question") or ""))
    return int(found[1] or found[2]) if found else -1


def order_of_args(args: dict[str, Any]) -> int:
    """Return the order number in the arguments of a recorded call."""
    return _order(args)


def asked_of(messages: list[dict[str, Any]], words: str) -> list[int]:
    """Return the order numbers of the calls whose results contain some words."""
    calls = {call["id"]: order_in(call) for each in messages for call in each.get("tool_calls") or ()}
    told = [each for each in messages if each["role"] == "tool" and words in str(each["content"])]
    return [calls[each["tool_call_id"]] for each in told if each.get("tool_call_id") in calls]


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a person's message."""
    return str(message["content"])
