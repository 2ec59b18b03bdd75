"""A router chooses the pattern that fits a question, writes down why, and calls that pattern.

First the kind of task is told, then, among the patterns that are good for it, one is chosen. Where there is nothing to
choose no model is asked; an answer that names nothing known falls back, on the kind `general` and on the first pattern.
Both choices are decisions on the record, with all candidates, and the chosen pattern's run derives from them.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from gesta.agent import Agent, joined
from gesta.entry import Entry
from gesta.errors import AgentError, nearest
from gesta.kinds import DecisionContent
from gesta.model.request import Model
from gesta.patterns.roles import Asked, BadAnswer, Prompts, answer_of, ask, heir, role, take
from gesta.workflow.verbs import Verbs

GENERAL = "general"
"""The kind of task that any message is."""


class TaskType(Struct, frozen=True):
    """A kind of task."""

    description: str = ""
    valid_patterns: list[str] = []
    """Names of the patterns that suit such a task; an empty list means all."""
    framing: str = ""
    """What the instructions of the chosen pattern say beside their own."""


class Choice(Struct, frozen=True):
    """The answer of a router."""

    choice: str
    rationale: str | None = None


def router(
    name: str,
    model: Model | str,
    patterns: Mapping[str, Agent],
    *,
    descriptions: Mapping[str, str] | None = None,
    task_types: Mapping[str, Any] | None = None,
    prompts: Prompts | None = None,
) -> Agent:
    """Make an agent that chooses one of several patterns to answer.

    Args:
        patterns: agents by the name under which they are chosen; the first is the fallback.
        descriptions: what each pattern is good for.
        task_types: kinds of task, each a `TaskType`, a dict of its fields or its JSON; of one that cannot be read, the
            name counts.
        prompts: texts in place of `classify` and `route`.

    Raises:
        AgentError: there is no pattern.
    """
    if not patterns:
        raise AgentError(f"Router {name!r} has no pattern to choose. Give one at least: patterns={{'react': agent}}.")
    types = {each: task_type(value) for each, value in (task_types or {}).items()}
    said = {each: (descriptions or {}).get(each, "") for each in patterns}

    async def program(verbs: Verbs, question: str) -> str:
        kinds = {each: type_.description for each, type_ in types.items()} or {GENERAL: ""}
        asked = await _chosen(verbs, "classify", {"message": question, "task_types": kinds}, [*kinds], prompts)
        kind, entry = _decide(verbs, "task type", (list(dict.fromkeys([*kinds, GENERAL])), GENERAL), asked)
        type_ = types.get(kind, TaskType())
        ways = [each for each in type_.valid_patterns if each in patterns] or [*patterns]
        shown = {"question": question, "task_type": kind, "patterns": {way: said[way] for way in ways}}
        asked = await _chosen(verbs, "route", shown, ways, prompts, entry.seq)
        way, entry = _decide(verbs, "pattern", (ways, ways[0]), asked, kind)
        agent = framed(heir(patterns[way], verbs.agent), type_.framing)
        return answer_of(await verbs.call(agent, question, f"{way} pattern", causes=[entry.seq], hear=verbs.aloud))

    return Agent(name, model=model, program=program)


def framed(agent: Agent, framing: str) -> Agent:
    """Return an agent with a text added to its instructions."""
    return msgspec.structs.replace(agent, instructions=joined(agent.instructions, framing))


def task_type(value: Any) -> TaskType:
    """Return a kind of task. Of a value that cannot be read, only the name is kept."""
    if isinstance(value, TaskType):
        return value
    try:
        given = json.loads(value) if isinstance(value, str | bytes) else dict(value)
        given = {"framing": given.get("framing_prompt", ""), **given}
        return msgspec.convert(given, TaskType)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return TaskType()


async def _chosen(
    verbs: Verbs, prompt: str, input: dict[str, Any], options: list[str], prompts: Prompts | None, cause: int = 0
) -> Asked[Choice]:
    """Ask a model to choose one of the options. A single option needs no model."""
    causes = [cause or verbs.question]
    if len(options) == 1:
        return Asked(Choice(options[0], "the only one"), tuple(causes))
    return await ask(verbs, role(verbs, prompt, prompts), input, prompt, partial(read_choice, options=options), causes)


def _decide(
    verbs: Verbs, name: str, known: tuple[list[str], str], asked: Asked[Choice], task_type: str | None = None
) -> tuple[str, Entry]:
    """Write the decision down.

    Args:
        known: the options, and the option that is taken where no answer could be used.
        task_type: kind of task that it is made for.
    """
    options, fallback = known
    choice = asked.value or Choice(fallback, f"fallback: {asked.problem}")
    content = DecisionContent(choice=choice.choice, candidates=options, rationale=choice.rationale, task_type=task_type)
    written, entry = verbs.note(name, content, asked.causes)
    return written.choice, entry


def read_choice(text: str, *, options: list[str]) -> Choice:
    """Read a choice: an object, or the bare name in any case and in quotes. Raises BadAnswer."""
    try:
        given = take(text, Choice)
    except BadAnswer:
        given = Choice(text)
    named = {option.lower(): option for option in options}
    word = given.choice.strip().strip("\"'`.").strip().lower()
    if word not in named:
        found = f"{given.choice.strip()!r:.100} is none of them.{nearest(word, named)}"
        raise BadAnswer(f"{found} Choose one of {', '.join(options)}.")
    return Choice(named[word], given.rationale)
