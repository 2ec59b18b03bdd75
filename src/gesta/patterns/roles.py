"""A role is a helper agent in a pattern, such as a planner, a router, or a worker.

A pattern is a ready-made agent in which several agents work together. The instructions of a role are a text file in
`prompts/`, or the caller's replacement for it, followed by the instructions of the pattern's own agent. A role has the
model, groups, state and policy of the pattern's agent, but only the tools that the pattern passes to it. If the answer
of a role cannot be read, the role is asked again with the problem, at most twice. Each of these requests is a workflow
step of its own. A verb is a method of the running workflow, such as one that calls another agent.
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
"""Texts by name. Each replaces the prompt of that name in `prompts/`."""
TRIES = 3
"""Greatest number of times that a role is asked for an answer that can be read."""
DECODER = JSONDecoder(strict=False)


class BadAnswer(ValueError):
    """A model's answer that cannot be used as it is. The message of this error is sent back to the model."""

    def __init__(self, problem: str, instead: Any = None) -> None:
        super().__init__(problem)
        self.instead = instead
        """The value to use if no later answer can be read either; `None` if there is no such value."""


class Asked(Struct, Generic[T], frozen=True):
    """The answer of a role, and the recorded entries that it was made from."""

    value: T | None
    """The value that was read from the answer; `None` if no answer could be used."""
    causes: tuple[Cause, ...]
    """Entries to name as causes of each entry that is made from this answer."""
    problem: str | None = None
    """What was wrong with the last answer; `None` if it could be read."""


class Part(Struct, frozen=True):
    """A goal and its result, as the agent that writes the final answer reads them."""

    goal: str
    result: str
    ok: bool = True
    """Whether the result is an answer and not an error."""


def prompt(name: str, prompts: Prompts | None = None) -> str:
    """Return the text of a prompt, without white space around it. Raises LookupError if no prompt has this name.

    Args:
        prompts: texts by name; a text replaces the prompt of its name.
    """
    if prompts is not None and name in prompts:
        return prompts[name].strip()
    text = files("gesta.patterns").joinpath("prompts", f"{name}.txt")
    if not text.is_file():
        known = sorted(each.name.removesuffix(".txt") for each in files("gesta.patterns").joinpath("prompts").iterdir())
        raise LookupError(f"No prompt {name!r}. Known: {', '.join(known)}; give others by prompts={{{name!r}: '...'}}.")
    return text.read_text("utf-8").strip()


def role(verbs: Verbs, name: str, prompts: Prompts | None = None, tools: Sequence[Tool] = ()) -> Agent:
    """Return a new agent for a role: a copy of the pattern's own agent with another name, instructions and tools.

    Args:
        verbs: the verbs of the running pattern.
        name: name of the role and of its prompt.
        prompts: texts by name; a text replaces the prompt of its name.
        tools: the tools of the role.
    """
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


def heir(agent: Agent[Any], own: Agent[Any]) -> Agent[Any]:
    """Return a copy of `agent` with the tool groups and state of the pattern's agent `own`, if these are set."""
    groups = own.groups if own.groups is not None else agent.groups
    return msgspec.structs.replace(agent, groups=groups, state=own.state or agent.state)


def offer(agent: Agent[Any]) -> list[dict[str, str]]:
    """Return the name and the description of each tool that an agent may use, to be shown to its planner."""
    return [{"name": tool.name, "description": tool.description} for tool in agent.offering("").tools]


async def ask(
    verbs: Verbs, agent: Agent, input: dict[str, Any], name: str, read: Callable[[str], T], causes: Sequence[Cause] = ()
) -> Asked[T]:
    """Ask a role until its answer can be read, at most `TRIES` times.

    Returns an `Asked` with the value that `read` returned, or else with the problem of the last answer.

    Args:
        agent: the role.
        input: what the role is asked, as JSON.
        name: name of the workflow step of the first try; later tries are named `name (2)` and so on.
        read: returns the value in the text of an answer, or raises BadAnswer.
        causes: entries that the input was made from.
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
    """Return the first JSON value in a model's text that has the given type. Other words around it are ignored.

    Raises:
        BadAnswer: the text contains no such value.
    """
    problem = None
    for value in _values(text):
        try:
            return msgspec.convert(value, type)
        except msgspec.ValidationError as wrong:
            problem = problem or str(wrong)
    raise BadAnswer(problem or "There is no JSON in it that can be read.")


def _values(text: str) -> list[Any]:
    """Return the JSON objects in a text. If a JSON list begins before the first object, the list comes first."""
    found: list[Any] = [each.value for each in objects(text) if each.value is not None]
    start, brace = text.find("["), text.find("{")
    if start >= 0 and (brace < 0 or start < brace):
        with suppress(ValueError, RecursionError):
            found.insert(0, DECODER.raw_decode(text, start)[0])
    return found


async def synthesise(verbs: Verbs, question: str, found: Sequence[tuple[str, Result]], prompts: Prompts | None) -> str:
    """Return the final answer, which an agent writes from the findings. Its words are streamed as they come.

    Args:
        found: each goal with its result.
        prompts: texts by name; the text `synthesise` replaces the prompt of the agent.

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
    """Return the answer of a child run. Raises Unanswered if the run ended without an answer."""
    if not said.ok:
        raise Unanswered(f"{said.name} ended with reason {said.reason}: {said.text}")
    return said.text
