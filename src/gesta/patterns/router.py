"""A router chooses the pattern (a ready-made agent) that suits a question, records why, and calls that pattern.

The router first asks a model for the type of the task, and then for one of the patterns that suit this type. If there
is only one option, no model is asked. If the model's answer names no option, the type is `general`, and the pattern is
the first one that suits. Each of the two choices is recorded as an entry of kind `decision`, with all candidates.
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
"""The type of task that fits every message. It is used if no other type could be chosen."""


class TaskType(Struct, frozen=True):
    """One of the types of tasks that a router tells apart."""

    description: str = ""
    """Text that tells the model which messages are of this type."""
    valid_patterns: list[str] = []
    """Names of the patterns that suit this kind of task; an empty list means all patterns."""
    framing: str = ""
    """Text that is added to the instructions of the chosen pattern."""


class Choice(Struct, frozen=True):
    """The answer of the model that chooses: one of the options."""

    choice: str
    rationale: str | None = None
    """Why it was chosen, in the model's words."""


def router(
    name: str,
    model: Model | str,
    patterns: Mapping[str, Agent[Any]],
    *,
    descriptions: Mapping[str, str] | None = None,
    task_types: Mapping[str, Any] | None = None,
    prompts: Prompts | None = None,
) -> Agent:
    """Return an agent that answers by choosing one of several patterns and calling it.

    Args:
        name: name of the agent.
        model: the model that chooses.
        patterns: the agents to choose from, by name. The first one is used if no choice could be made.
        descriptions: for names of patterns, texts that say which questions the pattern suits.
        task_types: types of tasks by name; each a `TaskType`, a dict of its fields, or JSON text. Of a value in another
            form, only the name is used.
        prompts: texts that replace the prompts `classify` and `route`.

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


def framed(agent: Agent[Any], framing: str) -> Agent[Any]:
    """Return a copy of the agent whose instructions end with `framing`."""
    return msgspec.structs.replace(agent, instructions=joined(agent.instructions, framing))


def task_type(value: Any) -> TaskType:
    """Return the type of task that a value describes; an empty `TaskType` if the value has no such form.

    A value is a `TaskType`, a dict of its fields, or JSON text.
    """
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
    """Return the option that a model chose, with the reason. A single option is returned without asking a model.

    Args:
        prompt: name of the prompt, and of the workflow step.
        input: what the model is shown.
        cause: seq of the entry that the choice is made from; 0 for the question.
    """
    causes = [cause or verbs.question]
    if len(options) == 1:
        return Asked(Choice(options[0], "the only one"), tuple(causes))
    return await ask(verbs, role(verbs, prompt, prompts), input, prompt, partial(read_choice, options=options), causes)


def _decide(
    verbs: Verbs, name: str, known: tuple[list[str], str], asked: Asked[Choice], task_type: str | None = None
) -> tuple[str, Entry]:
    """Write a `decision` entry. Return the option that was chosen, and the entry.

    If the turn was interrupted after this decision was written, the written entry is returned and nothing is added.

    Args:
        name: name under which the workflow stores the decision, and finds it after an interruption.
        known: the options, and the one of them that is chosen if the model's answer names none.
        asked: the answer of the model.
        task_type: the type of task that the decision is made for; `None` if the decision chooses the type.
    """
    options, fallback = known
    choice = asked.value or Choice(fallback, f"fallback: {asked.problem}")
    content = DecisionContent(choice=choice.choice, candidates=options, rationale=choice.rationale, task_type=task_type)
    written, entry = verbs.note(name, content, asked.causes)
    return written.choice, entry


def read_choice(text: str, *, options: list[str]) -> Choice:
    """Return the choice in a model's answer: a JSON object, or only a name, in any case or in quotes.

    Raises:
        BadAnswer: the name is not among the options.
    """
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
