"""Reads any run as LangChain's steps and finishes, and turns steps and finishes back into the contents of a run.

A run is a list of entries, the recorded work of an agent. An entry's seq is its number in the run, its content is what
it records, and its causes are the entries from which it was made. A step is an action (request to run a tool) with its
observation. A finish is an agent's final answer. Two recorded calls are two actions, even if they are equal.
"""

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gesta.compat.langchain.agents import (
    AgentAction,
    AgentActionMessageLog,
    AgentFinish,
    AgentStep,
    Outcome,
    said,
    taken,
)
from gesta.compat.langchain.messages import AIMessage, BaseMessage, message_of
from gesta.entry import Entry
from gesta.kinds import AssistantContent, ChatCompletionContent, Content, Status, ToolCallContent, ToolResultContent
from gesta.prompt import observation_text

UNANSWERED = "This call has no result on record."  # the same text as in `gesta.formatters.tool_calls`
ONE = "__arg1"  # LangChain's name for the argument of a tool that takes a text
CODE = "code_execution"  # name of the call that is recorded for code in a text
CALLING = ("tool_calls", "tool_use", "function_call")  # finish reasons of replies with native calls
ID = re.compile(r"[!-~]{1,40}")


class Asked(Struct):
    """One tool call of a model's reply, with its result if there is one."""

    content: ToolCallContent
    call_id: str | None
    entry: str | None = None
    result: ToolResultContent | None = None


class Made(Struct):
    """A model's reply with its tool calls and, if the reply ended the work, the final answer."""

    text: str = ""
    span: int = 0
    reason: str | None = None
    kept: dict[str, Any] | None = None
    """The actions as `contents` recorded them, if they cannot be derived from the text and the calls; else `None`."""
    calls: list[Asked] = field(default_factory=list)
    answer: AssistantContent | None = None
    late: "tuple[Made, int, ToolResultContent] | None" = None  # of a late result: reply, index of the call, result

    def message_log(self) -> list[BaseMessage]:
        """Return the messages from which the actions of the reply were parsed."""
        calls, invalid = [], []
        for asked in self.calls:
            name, meta = asked.content.tool_name, asked.content.meta or {}
            if isinstance(raw := meta.get("raw_args"), str):
                invalid.append({"name": name, "args": raw, "id": asked.call_id, "error": meta.get("error")})
            else:
                calls.append({"name": name, "args": asked.content.tool_args, "id": asked.call_id})
        return [AIMessage(self.text, tool_calls=calls, invalid_tool_calls=invalid)]

    def actions(self) -> list[AgentAction]:
        """Return one action for each call: the action in `kept`, or else one made from the reply's text and calls."""
        with suppress(KeyError, TypeError, ValueError):  # `kept` is `None` or from elsewhere
            return self._kept(self.kept or {})
        native = len(self.calls) > 1 or self.reason in CALLING or any(each.content.tool_call_id for each in self.calls)
        names = ["" if each.content.tool_name == CODE else each.content.tool_name for each in self.calls]
        parsed = not native and bool(self.text) and any(name in self.text for name in names)
        said = None if parsed else self.message_log()
        return [_action(self.text, asked, said) for asked in self.calls]

    def _kept(self, kept: dict[str, Any]) -> list[AgentAction]:
        """Return the actions that the function `contents` recorded in the metadata of the reply.

        Raises KeyError, TypeError or ValueError if `kept` does not have the form that `contents` writes.
        """
        log = [message_of(each["type"], each) for each in kept["message_log"]]
        return [
            (AgentActionMessageLog(**own, message_log=log) if "tool_call_id" in own else AgentAction(**own))
            for own in ({**own, "entry": asked.entry} for own, asked in zip(kept["actions"], self.calls, strict=True))
        ]

    def steps(self) -> list[AgentStep | AgentFinish]:
        """Return a step for each call, then a finish if the reply was an answer."""
        if self.late is not None:
            made, place, result = self.late
            return [replace(_step(made.actions()[place], result), outcome="late")]
        pairs = zip(self.actions(), self.calls, strict=True)
        found: list[AgentStep | AgentFinish] = [_step(action, asked.result) for action, asked in pairs]
        if self.answer is not None or (not self.calls and self.text.strip()):
            value = self.text if self.answer is None else self.answer.value
            values = self.answer.return_values if self.answer is not None else None
            found.append(AgentFinish({"output": value} if values is None else values, self.text))
        return found


class State(Struct):
    """The replies, tool calls and ids that were found in the entries read so far."""

    items: list[Made] = field(default_factory=list)
    completions: dict[int, Made] = field(default_factory=dict)
    calls: dict[int, tuple[Made, int]] = field(default_factory=dict)  # by seq: its reply, its index there
    used: set[str] = field(default_factory=set)  # call ids
    last: Made = field(default_factory=lambda: Made(span=-1))

    def add(self, made: Made) -> Made:
        """Add a reply as the newest one, and return it."""
        self.items.append(made)
        self.last = made
        return made


def steps(entries: Iterable[Entry]) -> list[AgentStep | AgentFinish]:
    """Return the steps and finishes of a run.

    A call without a result becomes a step with the outcome `unanswered`. A late result, which is a further result of a
    call, becomes a step of its own.
    """
    state = State()
    for entry in entries:
        match entry.content:
            case ChatCompletionContent() as made:
                state.add(Made(made.output, entry.span, made.finish_reason, made.actions))
                state.completions[entry.seq] = state.last
            case ToolCallContent() as call:
                _call(state, entry, call)
            case ToolResultContent() as result:
                _result(state, result)
            case AssistantContent() as answer:
                _answer(state, entry, answer)
    return [step for made in state.items for step in made.steps()]


def _reply(state: State, entry: Entry) -> Made | None:
    """Return the model's reply among the causes of an entry; `None` if there is none."""
    known = state.completions
    return next((known[cause] for cause in entry.causes if isinstance(cause, int) and cause in known), None)


def _call(state: State, entry: Entry, content: ToolCallContent) -> None:
    caused, last = _reply(state, entry), state.last
    made = caused or last
    if not caused and (last.answer or last.span != entry.span or any(asked.result for asked in last.calls)):
        made = state.add(Made(span=entry.span))
    made.calls.append(Asked(content, _call_id(state, entry.run, content.tool_call_id), entry.id))
    state.calls[entry.seq] = made, len(made.calls) - 1


def _call_id(state: State, run: str, own: str | None) -> str:
    """Return `own`, the provider's id of a call, or a new id if `own` is missing, invalid or already used.

    A new id is made from the id of the run and the number of the call. The formatters make ids by the same rule.
    """
    if not (own and ID.fullmatch(own) and own not in state.used):
        digest = hashlib.sha256(f"{run}|{len(state.calls) + 1}".encode()).hexdigest()
        own = next(made for end in range(8, 65) if (made := f"call_{digest[:end]}") not in state.used)
    state.used.add(own)
    return own


def _result(state: State, content: ToolResultContent) -> None:
    """Add a tool result to the call that it answers.

    The call is found by its seq, else by the provider's id. Without either, it is the first call of the last reply that
    has no result. If the call already has a result, the new one is added as a late result.
    """
    found = state.calls.get(content.call or 0)
    if content.call is None:
        waits = [(state.last, n) for n, asked in enumerate(state.last.calls) if asked.result is None]
        every = [*waits, *reversed(state.calls.values())] if content.tool_call_id is not None else []
        named = (each for each in every if each[0].calls[each[1]].content.tool_call_id == content.tool_call_id)
        found = next(named, waits[0] if waits else None)
    if found is None:
        unknown = ToolCallContent(tool_name="unknown", tool_args={})
        found = Made(calls=[Asked(unknown, content.tool_call_id, result=content)]), 0
    made, place = found
    if made.calls[place].result is None:
        made.calls[place].result = content
    else:
        state.items.append(Made(late=(made, place, content)))


def _answer(state: State, entry: Entry, content: AssistantContent) -> None:
    made = _reply(state, entry) or (None if state.last.calls else state.last)
    if made is None or made.answer is not None or made.span != entry.span:
        made = state.add(Made(content.value, entry.span))
    made.answer = content


def _action(text: str, asked: Asked, log: list[BaseMessage] | None) -> AgentAction:
    """Return the action of a call.

    Args:
        text: the text of the reply with the call.
        log: the messages of that reply; `None` if the call was parsed from the text, and so has no message log.
    """
    call, raw = asked.content, (asked.content.meta or {}).get("raw_args")
    one = call.tool_args.get(ONE) if len(call.tool_args) == 1 else None
    tool_input = next((each for each in (raw, one) if isinstance(each, str)), call.tool_args)
    if log is None:
        return AgentAction(call.tool_name, tool_input, text, entry=asked.entry)
    line = f"Invoking: `{call.tool_name}` with `{observation_text(tool_input)}`"
    line = f"{text}\n{line}" if text else line
    ids: dict[str, Any] = {"tool_call_id": asked.call_id, "entry": asked.entry}
    return AgentActionMessageLog(call.tool_name, tool_input, line, message_log=log, **ids)


def _step(action: AgentAction, result: ToolResultContent | None) -> AgentStep:
    if result is None:
        return AgentStep(action, UNANSWERED, "unanswered")
    outcome: Outcome | None = result.outcome or ("ok" if result.status == "success" else result.status)
    return AgentStep(action, result.tool_result, outcome)


class Round(Struct):
    """The steps of all tool calls in one model reply."""

    first: AgentAction
    asked: list[dict[str, Any]]  # calls in the last message of the reply
    steps: dict[int, AgentStep] = field(default_factory=dict)  # by index of the call, or 0

    def claim(self, step: AgentStep) -> bool:
        """Add a step if this reply has a matching call without a step. Return whether the step was added."""
        action = step.action
        if not isinstance(action, AgentActionMessageLog) or action.messages != self.first.messages:
            return False
        key, value = ("name", action.tool) if action.tool_call_id is None else ("id", action.tool_call_id)
        free = [n for n, call in enumerate(self.asked) if n not in self.steps and call.get(key) == value]
        exact = [n for n in free if self.asked[n]["args"] in (action.tool_input, {ONE: action.tool_input})]
        if free:
            self.steps[(exact or free)[0]] = step
        return bool(free)


def rounds(steps: Iterable[AgentStep | AgentFinish]) -> list[Round | AgentStep | AgentFinish]:
    """Return each model reply's steps as one `Round`. Finishes stay single, and so do further results of a call."""
    found: list[Round | AgentStep | AgentFinish] = []
    for step in map(taken, steps):
        if not isinstance(step, AgentStep | AgentFinish):
            raise TypeError(f"found a {type(step).__name__}; expected steps and finishes, of LangChain or of Gesta")
        if isinstance(step, AgentFinish) or step.outcome == "late":
            found.append(step)
            continue
        if found and isinstance(last := found[-1], Round) and last.claim(step):
            continue
        reply = [AIMessage(""), *said(step.action)][-1]
        made = Round(step.action, [*reply.tool_calls, *reply.invalid_tool_calls])
        if not made.claim(step):  # its call is not among those of the reply
            made = Round(step.action, [], {0: step})
        found.append(made)
    return found


def contents(steps: Iterable[AgentStep | AgentFinish]) -> list[Content]:
    """Return the contents of the entries that a run with these steps would have.

    The function `steps` reads the same steps from these contents. A result refers to its call by the provider's call
    id.
    """
    found: list[Content | None] = []
    for item in rounds(steps):
        if isinstance(item, Round):
            made = _made(item)
            found += [ChatCompletionContent(output=made.text, actions=made.kept)]
            found += [asked.content for asked in made.calls]
            found += [_written(step) for step in item.steps.values()]
        elif isinstance(item, AgentStep):
            found.append(_written(item))
        else:
            values = item.return_values
            text = observation_text(values.get("output"))
            more = None if values == {"output": text} else values
            found += [ChatCompletionContent(output=item.log), AssistantContent(value=text, return_values=more)]
    return [content for content in found if content is not None]


def _made(round_: Round) -> Made:
    """Return the model's reply whose tool calls became the steps in `round_`.

    Actions that cannot be derived from the text and the calls of the reply are also stored in its field `kept`.
    """
    first = round_.first
    log = said(first)
    text = log[-1].content if log else first.log
    made = Made(text=text if isinstance(text, str) else "")
    own = getattr(first, "tool_call_id", None)
    calls = round_.asked or [{"name": first.tool, "args": first.tool_input, "id": own, "type": "tool_call"}]
    for n, call in enumerate(calls):
        args, meta = call["args"], None
        if isinstance(args, str):
            broken = call["type"] == "invalid_tool_call"
            args, meta = ({}, {"raw_args": args, "error": call.get("error")}) if broken else ({ONE: args}, None)
        id_, step = call["id"], round_.steps.get(n)
        status: Status = "error" if meta else "success"
        content = ToolCallContent(tool_name=call["name"], tool_args=args, tool_call_id=id_, status=status, meta=meta)
        made.calls.append(Asked(content, id_, None if step is None else step.action.entry))
    derived = made.actions()
    wanted = [round_.steps[n].action if n in round_.steps else each for n, each in enumerate(derived)]
    if wanted != derived:
        names = "tool", "tool_input", "log", "tool_call_id"
        kept = [{name: getattr(each, name) for name in names if hasattr(each, name)} for each in wanted]
        made.kept = {"message_log": [message.model_dump() for message in log], "actions": kept}
    return made


def _written(step: AgentStep) -> ToolResultContent | None:
    """Return the observation of a step as a tool result; `None` if the call was never answered."""
    if step.outcome == "unanswered":
        return None
    outcome, call_id = step.outcome, getattr(step.action, "tool_call_id", None)
    status: Status | None = None if outcome is None else "success" if outcome in ("ok", "late") else "error"
    return ToolResultContent(tool_result=step.observation, tool_call_id=call_id, status=status, outcome=outcome)
