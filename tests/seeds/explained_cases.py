"""Random runs of every kind, and what an explain client ought to read of each of their sessions."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from tests.journeys.minds import QUICK
from tests.seeds.test_004_pattern_base import Supervisor, fetch, goals

import gesta
from gesta.compat.trustgraph.context import Action
from gesta.compat.trustgraph.pattern import Pattern
from gesta.compat.trustgraph.requests import AgentRequest
from gesta.kinds import ApprovalContent, Hit, PlanContent, Step, ToolCallContent
from gesta.patterns.plan import plan_then_execute
from gesta.patterns.react import react
from gesta.patterns.router import router
from gesta.patterns.supervisor import supervisor
from gesta.record.record import Record
from gesta.views.across import all_nodes
from gesta.views.lineage import Node, State
from gesta.views.prov import quads
from gesta.views.prov_chain import ENDS, FOLLOWED
from gesta.views.prov_names import Quad, names_of

SHAPES = (
    "calls",
    "lookups",
    "approvals",
    "limit",
    "failed",
    "plan",
    "supervisor",
    "router",
    "ported",
    "divided",
    "long",
    "wide",
)
WORDS = ("gold", "rain", 'a "quoted" word', "ünï\ncode 犬", "x" * 80, "")


@gesta.tool(effect="pure")
async def look(x: int, at: str = "") -> str:
    """Look."""
    if x % 7 == 6:
        raise ValueError("nothing there")
    return f"saw {x} {at}"


@gesta.tool(effect="pure")
async def search(word: str, context: gesta.Context) -> str:
    """Search."""
    for number in range(len(word) % 3):
        hits = [
            Hit(document=f"{word}.md", chunk=f"{place}", page=place or None, score=0.5) for place in range(number + 1)
        ]
        context.found(word, hits)
    return word.upper()


@gesta.tool(effect="pure", approval=True)
async def pay(x: int) -> str:
    """Pay."""
    return f"paid {x}"


TOOLS = [look, search, pay]


def reply(draw: random.Random, tool: str) -> Any:
    """One to four calls, with or without words and a thought."""
    calls = []
    for _ in range(draw.choice((1, 1, 2, 4))):
        args: dict[str, Any] = {"x": draw.randrange(20)}
        if tool == "search":
            args = {"word": draw.choice(WORDS)}
        elif tool == "look":
            args["at"] = draw.choice(WORDS)
        calls.append(gesta.call(tool, **args))
    return gesta.reply(draw.choice(("", "Let me see.")), thought=draw.choice((None, "Which?")), calls=calls)


def acting(draw: random.Random, shape: str) -> gesta.Agent[Any]:
    """An agent that calls tools."""
    tool = {"lookups": "search", "approvals": "pay"}.get(shape, "look")
    script: list[Any] = [reply(draw, tool) for _ in range(70 if shape == "long" else draw.randrange(4))]
    if shape != "failed":
        script.append(draw.choice(("Dry.", gesta.reply("Dry.", thought="So."))))
    policy = msgspec.structs.replace(QUICK, limits=gesta.Limits(requests=2 if shape == "limit" else 100))
    return gesta.Agent("eye", model=gesta.scripted(*script), tools=TOOLS, policy=policy)


def patterned(draw: random.Random, shape: str) -> gesta.Agent[Any]:
    """An agent whose program asks others."""
    goals = [draw.choice(WORDS[:3]) for _ in range(draw.randrange(1, 5))]
    steps = [
        {"goal": goal, "depends_on": sorted(draw.sample(range(place), draw.randrange(place + 1)))}
        for place, goal in enumerate(goals)
    ]
    fails = draw.choice((None, None, "execute", "research", "synthesise"))

    def says(messages: Sequence[Mapping[str, Any]], header: Any) -> Any:
        name = str((header.meta.get("prompt") or {}).get("name"))
        if name == fails:
            raise ValueError("no luck")
        if name in ("execute", "research") and messages[-1]["role"] == "user" and draw.random() < 0.5:
            return reply(draw, "look")
        plans = {"decompose": {"goals": goals}, "plan": {"steps": steps}}
        return msgspec.json.encode(plans[name]).decode() if name in plans else {"route": "boss"}.get(name, "so it is")

    model = gesta.function(says)
    boss = supervisor("boss", model, [look])
    made = {
        "plan": plan_then_execute("planner", model, [look]),
        "supervisor": boss,
        "router": router("front", model, {"plain": react("plain", model), "boss": boss}, task_types={"research": {}}),
    }[shape]
    return msgspec.structs.replace(made, policy=QUICK)


class Ported(Pattern):
    """Looks a few times, then answers."""

    looks: ClassVar[int] = 3

    async def iterate(self, request: AgentRequest, respond: Any, next: Any, flow: Any) -> None:
        number = len(request.history) + 1
        if number <= self.looks:
            act = Action("I look." if number % 2 else "", "look", {"x": number})
            await self.emit_iteration(number, act)
            await self.emit_observation(number, f"saw {number}")
            act.observation = f"saw {number}"
            history = [*self.build_history(request), act]
            await next(self.build_next_request(request, history, request.session_id, "", False, "looked"))
        else:
            await self.emit_final("Dry.")
            await self.send_final_response(respond, request.streaming, "Dry.")


def sub_agents(draw: random.Random) -> gesta.Agent[Any]:
    """A pattern of TrustGraph's form that sends its goals to sub-agents, of which some fail."""
    places = [draw.choice(("attic", "cellar", "roof")) for _ in range(draw.randrange(1, 5))]
    fails = draw.choice(("", *places))
    divided = Supervisor.agent("boss", goals(*places, fails=fails), tools=[fetch])
    return msgspec.structs.replace(divided, policy=QUICK)


def wide(draw: random.Random) -> gesta.Agent[Any]:
    """A program of which so much derives from one node that no client asks for all of it at once."""
    count = draw.randrange(10, 45)

    async def program(verbs: Any, question: str) -> str:
        goals = [Step(goal=f"goal {place}") for place in range(count)]
        _, plan = verbs.note("goals", PlanContent(role="decomposition", steps=goals), [verbs.question])
        helper = gesta.Agent("helper", model=gesta.function(lambda *_: "found"))
        for place, goal in enumerate(goals):
            await verbs.call(helper, goal.goal, f"finding {place}", role="finding", causes=[plan.seq])
            verbs.note(f"call {place}", ToolCallContent(tool_name="f", tool_args={"n": place}), [plan.seq])
        return "all"

    return gesta.Agent("wide", program=program)


def agent_of(draw: random.Random, shape: str) -> gesta.Agent[Any]:
    """An agent of a shape."""
    if shape in ("plan", "supervisor", "router"):
        return patterned(draw, shape)
    if shape == "divided":
        return sub_agents(draw)
    if shape == "ported":
        return Ported.agent("ported", gesta.function(lambda *_: "x"))
    return wide(draw) if shape == "wide" else acting(draw, shape)


class Case(msgspec.Struct):
    """A run and what is said of it."""

    nodes: Sequence[Node]
    state: State
    quads: list[Quad]
    names: dict[str, str]

    def sessions(self) -> list[str]:
        """Names of the questions."""
        return [self.names[node.id] for node in self.nodes if node.type == "Question"]

    def expected(self, session: str) -> dict[str, list[Node]]:
        """The entities of a session that a client reads, and their nodes."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            name = self.names.get(node.id, "")
            if node.type in FOLLOWED | ENDS and name.partition("/")[0] == session:
                found.setdefault(name, []).append(node)
        return found


async def case(seed: int, shape: str) -> Case:
    """Run a random agent, twice in one conversation now and then, and export all that is explained."""
    draw = random.Random(seed)
    async with gesta.open() as record:
        agent = agent_of(draw, shape)
        for _ in range(draw.choice((1, 1, 2))):
            await answered(record, agent, draw)
        nodes, state = await all_nodes(record)
        return Case(nodes, state, list(quads(nodes, state)), names_of(state))


async def answered(record: Record, agent: gesta.Agent[Any], draw: random.Random) -> None:
    """Run a turn to its end, and approve or deny what it asks."""
    outcome = await record.run(agent, draw.choice(WORDS[:4]) or "Why?", session="s")
    while outcome.reason == "waiting":
        for waiting in outcome.waiting:
            assert waiting.of is not None
            verdict = draw.choice(("approved", "denied"))
            letter = ApprovalContent(of=waiting.of, verdict=verdict, by="ann", reason="so")  # type: ignore[arg-type]
            await record.send(outcome.run, letter, key=f"a{waiting.of}")
        outcome = await record.resume(outcome.run, agent)


# ------------------------------------------------------------------------------------------------------------- a client


class Graph:
    """Statements as a store of TrustGraph's answers queries on them."""

    def __init__(self, statements: Sequence[Quad]) -> None:
        self._by: dict[tuple[str, str], list[Quad]] = {}
        for each in statements:
            self._by.setdefault(("s", each.subject.value), []).append(each)
            self._by.setdefault((each.predicate.value, each.object.value), []).append(each)
        self.asked = Counter[str]()

    def triples_query(self, **asked: Any) -> list[dict[str, Any]]:
        """Return the statements about a subject, or those with a predicate and an object, up to a limit."""
        key = ("s", asked["s"]) if asked.get("s") else (asked["p"], asked["o"])
        found = [each for each in self._by.get(key, ()) if asked.get("g") in (None, each.graph.value)]
        return [{"s": wire(each.subject), "p": wire(each.predicate), "o": wire(each.object)} for each in found][
            : asked["limit"]
        ]

    def text(self, document: str) -> str:
        """Return what a document holds."""
        found = (
            each.object.value for each in self._by.get(("s", document), ()) if each.predicate.value.endswith("#value")
        )
        return next(found, "")


def wire(term: Any) -> dict[str, str]:
    return {"t": "i", "i": term.value} if term.type == "iri" else {"t": "l", "v": term.value}
