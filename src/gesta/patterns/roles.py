"""A role is an agent made of a prompt: planner, decomposer, router, synthesiser and those who work for them.

Its instructions are a text file in `prompts/`, or what a call gives in its place, and then what the instructions of the
pattern's own agent add; the digest of that text stands in each request-header. Model, tools, groups, state and policy
are those of the pattern's agent, so that whoever changes these changes them for all who work for it. An answer that
cannot be read goes back to its model, with what is wrong with it, at most twice; every such question is a step of its
own on the record.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from json import JSONDecoder
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from gesta.agent import Agent, Unanswered, joined
from gesta.entry import Cause
from gesta.function_tool.tool import Tool
from gesta.text.objects import objects
from gesta.workflow.verbs import Result, Verbs

T = TypeVar("T")
Prompts = Mapping[str, str]
"""Texts in place of those in `prompts/`, by name."""
TRIES = 3
"""How often a role is asked until its answer can be read."""
DECODER = JSONDecoder(strict=False)


class BadAnswer(ValueError):
    """An answer that cannot be used as it is; the message is for the model."""

    def __init__(self, problem: str, instead: Any = None) -> None:
        super().__init__(problem)
        self.instead = instead
        """What is used if no better answer comes."""


class Asked(Struct, Generic[T], frozen=True):
    """The answer of a role."""

    value: T | None
    """None where no answer could be used."""
    causes: tuple[Cause, ...]
    """What is made of it names these."""
    problem: str | None = None
    """What was wrong with the last answer."""


class Part(Struct, frozen=True):
    """A finding, for the agent that writes the answer."""

    goal: str
    result: str
    ok: bool = True


def prompt(name: str, prompts: Prompts | None = None) -> str:
    """Read the text of a prompt, without the line ends around it. Raises LookupError."""
    if prompts is not None and name in prompts:
        return prompts[name].strip()
    text = files("gesta.patterns").joinpath("prompts", f"{name}.txt")
    if not text.is_file():
        known = sorted(each.name.removesuffix(".txt") for each in files("gesta.patterns").joinpath("prompts").iterdir())
        raise LookupError(f"No prompt {name!r}. Known: {', '.join(known)}; give others by prompts={{{name!r}: '...'}}.")
    return text.read_text("utf-8").strip()


def role(verbs: Verbs, name: str, prompts: Prompts | None = None, tools: Sequence[Tool] = ()) -> Agent:
    """Return the agent of a role, for the pattern that these verbs belong to."""
    own, text = verbs.agent, prompt(name, prompts)
    return msgspec.structs.replace(
        own,
        name=name,
        instructions=joined(text, own.instructions),
        tools=tuple(tools),
        formatter=own.formatter if tools else "tool-calls",
        meta={**own.meta, "prompt": {"name": name, "digest": hashlib.sha256(text.encode()).hexdigest()}},
        program=None,
        hint=None,
    )


def heir(agent: Agent, own: Agent) -> Agent:
    """Return an agent with the groups and the state of the pattern's agent, if that agent has any."""
    groups = own.groups if own.groups is not None else agent.groups
    return msgspec.structs.replace(agent, groups=groups, state=own.state or agent.state)


def offer(agent: Agent) -> list[dict[str, str]]:
    """Return a list of the tools that an agent may use, as text for its planner."""
    return [{"name": tool.name, "description": tool.description} for tool in agent.offering("").tools]


async def ask(
    verbs: Verbs, agent: Agent, input: dict[str, Any], name: str, read: Callable[[str], T], causes: Sequence[Cause] = ()
) -> Asked[T]:
    """Ask a role until its answer can be read, at most `TRIES` times.

    Args:
        name: of the step; further ones are named `name (2)` and so on.
        read: reads an answer; raises BadAnswer.
    """
    told, made, wrong = input, tuple(causes), BadAnswer("")
    for number in range(1, TRIES + 1):
        said = await verbs.call(agent, told, name if number == 1 else f"{name} ({number})", causes=made)
        made = (*causes, said.seq)
        if not said.ok:
            return Asked(None, made, said.text)
        try:
            return Asked(read(said.text), made)
        except BadAnswer as bad:
            told, wrong = {**input, "your_answer": said.text, "problem": str(bad)}, bad
    return Asked(wrong.instead, made, str(wrong))


def take(text: str, type: type[T]) -> T:
    """Return the typed answer in a model's text, whatever stands around it. Raises BadAnswer."""
    problem = None
    for value in _values(text):
        try:
            return msgspec.convert(value, type)
        except msgspec.ValidationError as wrong:
            problem = problem or str(wrong)
    raise BadAnswer(problem or "There is no JSON in it that can be read.")


def _values(text: str) -> list[Any]:
    """Find the JSON values in a text: a list that begins before every object, then the objects."""
    found: list[Any] = [each.value for each in objects(text) if each.value is not None]
    start, brace = text.find("["), text.find("{")
    if start >= 0 and (brace < 0 or start < brace):
        with suppress(ValueError, RecursionError):
            found.insert(0, DECODER.raw_decode(text, start)[0])
    return found


async def synthesise(verbs: Verbs, question: str, found: Sequence[tuple[str, Result]], prompts: Prompts | None) -> str:
    """Ask an agent to write the answer from the findings. Its words are streamed as this run's own.

    Raises:
        Unanswered: the agent could not write the answer.
    """
    parts = [Part(goal, each.text, each.ok) for goal, each in found]
    said = await verbs.call(
        role(verbs, "synthesise", prompts),
        {"question": question, "results": msgspec.to_builtins(parts)},
        "synthesis",
        role="synthesis",
        causes=[each.seq for _, each in found],
        hear=verbs.aloud,
    )
    return answer_of(said)


def answer_of(said: Result) -> str:
    """Return the answer of a step. Raises Unanswered."""
    if not said.ok:
        raise Unanswered(f"{said.name} ended with reason {said.reason}: {said.text}")
    return said.text
