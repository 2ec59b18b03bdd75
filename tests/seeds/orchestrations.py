"""Random programs of agents and tasks, which are the same for Langroid and for `gesta.compat.langroid`.

A program is data: what each model says in turn, what its task is set to, and which tasks are below it. `play` makes it
of either library, runs it, and returns all that can be seen of it: who was asked what, which tools ran, what came out.
"""

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

SUBS = ("Bob", "Cy", "Dee", "Eve")
HEADS = re.compile(r"^(Observation( \d+)?: (\(\w+\) )?|Result from \w+: )", re.MULTILINE)
ENDED = ("OK", "DONE", "USER_QUIT")
"""Ways in which a task ends well; which one that is differs."""
Item = str | tuple[tuple[str, dict[str, Any]], ...]
"""What a model says: a text, or calls of tools."""


@dataclass(frozen=True)
class Actor:
    """A task with its agent."""

    name: str
    script: tuple[Item, ...]
    """What its model says in turn; the last for ever."""
    native: bool = False
    agent: dict[str, Any] = field(default_factory=dict)
    """Settings of the agent."""
    task: dict[str, Any] = field(default_factory=dict)
    """Settings of the task."""
    config: dict[str, Any] = field(default_factory=dict)
    """Its `TaskConfig`."""
    handles: tuple[str, ...] = ()
    """Tools that it handles and its model does not use."""
    uses: tuple[str, ...] = ()
    """Tools that its model uses and it does not handle."""
    subs: tuple["Actor", ...] = ()


@dataclass(frozen=True)
class Case:
    """A program, and what it is run with."""

    root: Actor
    messages: tuple[str, ...] = ("go",)
    turns: int = -1
    person: tuple[str, ...] = ()
    """What a person says in turn; an empty tuple where there is none."""


class Library:
    """Langroid, or what stands for it."""

    def __init__(self, lr: Any, model: Callable[[Any, Any], Any], quiet: dict[str, Any]) -> None:
        self.lr, self.model, self.quiet = lr, model, quiet
        tools = lr.agent.tools.orchestration
        self.tools: dict[str, Any] = {
            "done_tool": tools.DoneTool,
            "pass_tool": tools.PassTool,
            "done_pass_tool": tools.DonePassTool,
            "forward_tool": tools.ForwardTool,
            "send_tool": tools.SendTool,
            "recipient_message": lr.agent.tools.recipient_tool.RecipientTool,
        }
        self.seen: list[Any] = []
        self._own_tools(tools)

    def _own_tools(self, tools: Any) -> None:
        library = self

        class Square(self.lr.ToolMessage):  # type: ignore[name-defined]  # of either library
            request: str = "square"
            purpose: str = "To find the square of a <num>."
            num: int

            def handle(self) -> str:
                library.seen.append(("square", self.num))
                return str(self.num**2)

        class Double(self.lr.ToolMessage):  # type: ignore[name-defined]  # as above
            request: str = "double"
            purpose: str = "To double a <num>."
            num: int

            def handle(self) -> str:
                library.seen.append(("double", self.num))
                return str(self.num * 2)

        class Answer(self.lr.ToolMessage):  # type: ignore[name-defined]  # as above
            request: str = "answer"
            purpose: str = "To say a <num>."
            num: int

        class Steer(self.lr.ToolMessage):  # type: ignore[name-defined]  # as above
            request: str = "steer"
            purpose: str = "To have a program do <what>."
            what: str
            num: int

            def response(self, agent: Any) -> Any:
                library.seen.append(("steer", self.what, self.num))
                return library.steered(tools, agent, self.what, self.num)

        self.answer = Answer
        self.tools |= {"square": Square, "double": Double, "answer": Answer, "steer": Steer}

    def steered(self, tools: Any, agent: Any, what: str, num: int) -> Any:
        """What a handler returns."""
        word, _, name = what.partition(":")
        made: dict[str, Callable[[], Any]] = {
            "text": lambda: f"text {num}",
            "number": lambda: num,
            "list": lambda: [num, num],
            "done": lambda: tools.DoneTool(content=f"done {num}"),
            "agent done": lambda: tools.AgentDoneTool(content=num),
            "agent done tools": lambda: tools.AgentDoneTool(content=f"with {num}", tools=[self.answer(num=num)]),
            "result": lambda: tools.ResultTool(num=num),
            "final": lambda: tools.FinalResultTool(num=num),
            "send": lambda: tools.SendTool(to=name, content=f"sent {num}"),
            "agent send": lambda: tools.AgentSendTool(to=name, content=f"sent {num}"),
            "forward": lambda: tools.ForwardTool(agent=name),
            "document": lambda: agent.create_agent_response(f"document {num}", recipient=name),
        }
        return made[word]()

    def settings(self, actor: Actor) -> dict[str, Any]:
        """Make the settings of an agent."""
        match actor.agent.get("handle_llm_no_tool"):
            case ("tool", name):
                return {"handle_llm_no_tool": self.tools[name](**({"num": 4} if name == "answer" else {}))}
            case ("function", text):
                return {"handle_llm_no_tool": lambda _msg: text}
        return actor.agent

    def task(self, actor: Actor, case: Case) -> Any:
        """Make the task of an actor, with those below it."""
        ways = {"use_tools": not actor.native, "use_functions_api": actor.native, "use_tools_api": True}
        config = self.lr.ChatAgentConfig(name=actor.name, system_message="", **ways, **self.settings(actor))
        agent = self.model(config, _says(actor, self.seen))
        for name in ("square", "steer", "done_tool", "pass_tool", "done_pass_tool", "forward_tool", "send_tool"):
            agent.enable_message(self.tools[name])
        if any(
            name in ("recipient_message", "add_recipient")
            for item in actor.script
            if not isinstance(item, str)
            for name, _ in item
        ):
            agent.enable_message(self.tools["recipient_message"])
        for name in actor.handles:
            agent.enable_message(self.tools[name], use=False, handle=True)
        for name in actor.uses:
            agent.enable_message(self.tools[name], use=True, handle=False)
        if not {"double"} & {*actor.handles, *actor.uses}:
            agent.enable_message(self.tools["double"], use=False, handle=False)
        if case.person:
            agent.callbacks.get_user_response = self._person(actor, case)
        given = {"interactive": False} | actor.task
        for key in ("done_if_response", "done_if_no_response"):
            if key in given:
                given[key] = [getattr(self.lr.Entity, each) for each in given[key]]
        made = self.lr.Task(agent, name=actor.name, config=self.lr.TaskConfig(**self.quiet, **actor.config), **given)
        made.add_sub_task([self.task(each, case) for each in actor.subs])
        return made

    def _person(self, actor: Actor, case: Case) -> Callable[..., str]:
        said = iter(case.person)

        def answer(**_given: Any) -> str:
            text = next(said, "q")
            self.seen.append((actor.name, "person", text))
            return text

        return answer


def _says(actor: Actor, seen: list[Any]) -> Callable[[list[str]], Item]:
    """What a model says to what it was told since it spoke last."""
    said = iter(actor.script)

    def say(told: list[str]) -> Item:
        seen.append((actor.name, plain(told[-1]) if told else None))
        item = next(said, actor.script[-1])
        return item if actor.native or isinstance(item, str) else written(item)

    return say


def plain(text: str) -> str:
    """A text without the words that head the results of tools."""
    if "add_recipient" in text and "request" not in text:
        return "(to whom?)"
    if "Arguments of '" in text or "There were one or more errors" in text:
        return "(wrong arguments)"
    if "recipient_message" in text and "request" not in text:
        return "(nothing to send)"
    return HEADS.sub("", text).replace("\n\n", "\n").strip()


def written(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Calls as a text."""
    return "\n".join(json.dumps({"request": name, **args}) for name, args in calls)


def play(library: Library, case: Case) -> list[Any]:
    """Run a program, and return all that can be seen."""
    library.seen.clear()
    task = library.task(case.root, case)
    for message in case.messages:
        try:
            result = task.run(message, turns=case.turns)
        except Exception as error:  # noqa: BLE001 - what it raises is what is compared
            library.seen.append(("raised", type(error).__name__))
            break
        library.seen.append(("result", shown(result)))
    return list(library.seen)


def shown(doc: Any) -> Any:
    """What a result says."""
    if doc is None:
        return None
    tools = [
        {"request": each.request}
        | {key: value for key, value in vars_of(each).items() if key not in ("request", "purpose", "id")}
        for each in doc.tool_messages
    ]
    any_ = None if isinstance(doc.content_any, str) else doc.content_any
    status = "" if str(doc.metadata.status).rpartition(".")[2] in ENDED else str(doc.metadata.status)
    return plain(doc.content), any_, tools, doc.metadata.recipient.removeprefix("Ann"), status.rpartition(".")[2]


def vars_of(tool: Any) -> dict[str, Any]:
    dump = tool.model_dump() if hasattr(tool, "model_dump") else {}
    return dict(dump) | {key: value for key, value in getattr(tool, "__dict__", {}).items() if not key.startswith("_")}


# what the programs are made of


def case_of(seed: int) -> Case:
    """The program of a seed."""
    return Maker(random.Random(seed)).case()


def without_final(actor: Actor) -> Actor:
    """The same without results that end all tasks."""
    script = tuple(
        (("steer", {**item[0][1], "what": "done"}),)
        if not isinstance(item, str) and item[0][1].get("what") == "final"
        else item
        for item in actor.script
    )
    return replace(actor, script=script, subs=tuple(map(without_final, actor.subs)))


class Maker:
    """Draws a program."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def case(self) -> Case:
        native = self.chance(0.35)
        names = list(SUBS[: self.dice.choice([0, 1, 1, 2, 2, 3])])
        deep = len(names) > 1 and self.chance(0.3)
        inner = (self.sub(names.pop(), native, (), parent=names[-1], handles=True),) if deep else ()
        subs = tuple(
            self.sub(name, native, inner if n == len(names) - 1 else (), parent="Ann", handles=not n or not native)
            for n, name in enumerate(names)
        )
        prefix = "@" if self.chance(0.3) else ""
        root = self.root(subs, native, prefix)
        runs = 1
        if self.chance(0.15) and "done_sequences" not in root.config:
            runs = 2
        turns = (
            self.dice.randint(1, 6) if (self.chance(0.2) and not root.uses) or "allow_null_result" in root.task else -1
        )
        person: tuple[str, ...] = ()
        if root.task.get("interactive"):  # there, an interactive task may lose a final result
            root = replace(root, subs=tuple(map(without_final, root.subs)))
            said = [
                f"And {self.number()}?",
                "",
                f"DONE {self.number()}",
                "q",
                *(f"__SEND__:{each.name} hi" for each in subs),
            ]
            person = tuple(self.dice.choice(said) for _ in range(self.dice.randint(1, 4)))
        return Case(root, tuple(f"go {n}" for n in range(1, runs + 1)), turns, person)

    def root(self, subs: tuple[Actor, ...], native: bool, prefix: str) -> Actor:
        names = [each.name for each in subs]
        task: dict[str, Any] = {}
        config: dict[str, Any] = {"addressing_prefix": prefix}
        agent: dict[str, Any] = {}
        if self.chance(0.1):
            task["single_round"] = True
        if self.chance(0.1):
            task["restart"] = False
        if self.chance(0.1):
            task["done_if_response"] = [self.dice.choice(["LLM", "AGENT"])]
        if self.chance(0.05):
            task["done_if_no_response"] = ["LLM"]
        if self.chance(0.03):
            task["allow_null_result"] = True
        if self.chance(0.12):
            task |= {"interactive": True, "only_user_quits_root": self.chance(0.5)}
        if self.chance(0.08):
            config["done_if_tool"] = True
        if self.chance(0.15):
            config["done_sequences"] = [
                self.dice.choice(["T, A", "T[square], A", "T, A, L", "L", "T, A, T", "A, L, A"])
            ]
        ended_by_tool = {*task, *config} & {
            "single_round",
            "done_if_response",
            "done_if_tool",
            "done_sequences",
            "interactive",
        }
        handed = any("double" in each.handles for each in subs) and not ended_by_tool
        named = not handed and bool(names) and self.chance(0.2)
        count = self.dice.randint(0, 4)
        moves = [self.move(names, prefix, handed=handed, named=named, first=not n) for n in range(count)]
        if named and self.chance(0.5):
            name, num = self.dice.choice(names), self.number()
            unsent = [
                f"What is {num}?",
                self.call("recipient_message", intended_recipient="", content=f"What is {num}?"),
            ]
            known = self.call("recipient_message", intended_recipient=name, content=f"And {num}?")
            moves += [self.dice.choice(unsent), self.call("add_recipient", intended_recipient=name), known]
        if not subs:
            ways = ["use a tool", "done", ("tool", "done_pass_tool"), ("tool", "answer"), ("function", "no tool?")]
            agent["handle_llm_no_tool"] = self.dice.choice(ways)
        if config.get("done_sequences") == ["T[square], A"]:  # there, no tool is found among several
            moves = [item if isinstance(item, str) else item[:1] for item in moves]
        uses = ("double",) if handed else ()
        return Actor("Ann", (*moves, self.end()), native, agent, task, config, (), uses, subs)

    def sub(self, name: str, native: bool, subs: tuple[Actor, ...], parent: str, *, handles: bool) -> Actor:
        moves: list[Item] = []
        if self.chance(0.4):
            moves.append(self.call("square", num=self.number()))
        if subs and self.chance(0.7):
            moves.append(self.move([each.name for each in subs], "", handed=False, named=False, first=not moves))
        config = {"restart_as_subtask": True} if self.chance(0.2) else {}
        handled = ("double",) if handles and self.chance(0.4) else ()
        task: dict[str, Any] = {"single_round": True} if self.chance(0.15) else {}
        agent = {"handle_llm_no_tool": "done"} if self.chance(0.2) else {}
        ends = [self.end(sub=True, parent=parent) for _ in range(self.dice.randint(1, 3))]
        return Actor(name, (*moves, *ends), native, agent, task, config, handled, (), subs)

    def number(self) -> int:
        return self.dice.randint(2, 99)

    def call(self, name: str, **args: Any) -> Item:
        return ((name, args),)

    def end(self, *, sub: bool = False, parent: str = "") -> Item:
        num = self.number()
        ways: list[Item] = [f"DONE {num}", f"It is {num}. DONE", self.call("done_tool", content=f"{num}")]
        ways += [
            self.call("steer", what=what, num=num) for what in ("done", "agent done", "agent done tools", "result")
        ]
        if sub:
            ways += [
                "DONE DO-NOT-KNOW",
                f"__SEND__:{parent} sent {num}",
                self.call("send_tool", to=parent, content=f"{num}"),
            ]
            ways += [self.call("done_pass_tool"), self.call("steer", what="final", num=num)]
        return self.dice.choice(ways)

    def move(self, names: list[str], prefix: str, *, handed: bool, named: bool, first: bool) -> Item:
        """What a model says in the course of its work.

        Args:
            names: whom it may address.
            handed: whether there is a tool that a sub-task handles.
            named: whether it is to name a recipient by a tool.
            first: whether it was said nothing yet but the task: what it passes on comes from elsewhere.
        """
        num = self.number()
        ways: list[Item] = [
            self.call("square", num=num),
            self.call("square", num=num),
            (("square", {"num": num}), ("square", {"num": num + 1})),
            self.call("steer", what=self.dice.choice(["text", "number", "list"]), num=num),
        ]
        if self.chance(0.1):
            ways = [self.call("square", num="x"), self.call("square"), "DO-NOT-KNOW" if names else f"Hm, {num}"]
        if names:
            name = self.dice.choice(names)
            ways += [f"What is {num}?", f"__SEND__:{name} what is {num}?", f"TO[{name}]: what is {num}?"]
            ways += [self.call("send_tool", to=name, content=f"what is {num}?")]
            whats = [f"{each}:{name}" for each in ("send", "agent send", "document")]
            ways += [self.call("steer", what=what, num=num) for what in whats]
            if first:
                ways += [f"__PASS__:{name}", self.call("forward_tool", agent=name)]
            if self.chance(0.008):
                ways = [self.call("pass_tool"), f"__PASS__:{name}", self.call("forward_tool", agent=name)]
            if prefix:
                ways += [f"Well, {prefix}{name} what is {num}?", f"{prefix}{name}, what is {num}?"]
            if named:
                ways += [self.call("recipient_message", intended_recipient=name, content=f"what is {num}?")] * 3
        if handed:
            ways += [self.call("double", num=num)] * 4
        return self.dice.choice(ways)
