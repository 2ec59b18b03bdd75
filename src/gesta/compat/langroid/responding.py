"""Writes one response of a chat agent into a live run: the incoming document, the model's answer, and tool results.

A live run is a run that is open for writing. A run is a list of entries; an entry's seq is its number in its run, and
its causes are the entries it was made from. A tool message is a tool call as data. A document is a message with its
sender and recipient. These functions do the work of the agent's response methods. After an interruption, a function is
called again with the entries that the response has already written, and does only what is missing.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from gesta.agent import Agent
from gesta.compat.langroid.chat_document import (
    ChatDocMetaData,
    ChatDocument,
    Entity,
    LLMFunctionCall,
    OpenAIToolCall,
    Tools,
    from_state,
    process_tool_results,
)
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.tool_message import ToolForm, arguments_of, attempt, to_json
from gesta.compat.langroid.toolset import Described
from gesta.compat.langroid.working import RunContext, leave
from gesta.decide.move import Correct, Finish, Wait, asks_again, decide_calls, decide_request
from gesta.decide.open_call import NEVER
from gesta.entry import Cause, Entry
from gesta.errors import BadArguments
from gesta.kinds import (
    ChatCompletionContent,
    SystemContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.loop import step
from gesta.model.request import Reply, ReplyCall
from gesta.perform.move import perform
from gesta.prompt import observation_text
from gesta.state.calls import OpenCall


def id_of(text: str) -> tuple[str, int] | None:
    """Return the run and the seq in an entry's id, such as `run.7`; `None` if the text is not an id."""
    run, _, seq = text.rpartition(".")
    return (run, int(seq)) if run and seq.isdigit() else None


def cause_of(id: str, run: str) -> tuple[Cause, ...]:
    """Return a tuple with one cause for a new entry in `run`: the entry `id`. Empty if `id` is not an entry's id."""
    key = id_of(id)
    return () if key is None else ((key[1] if key[0] == run else key),)


def take_in_document(context: RunContext, doc: ChatDocument) -> None:
    """Record in the run a document that came from outside it.

    The parts of the document that answer open calls (calls without a result) become results of these calls. The rest of
    its text becomes a message. A document that this run made is not recorded again.
    """
    live, key = context.live, id_of(doc.metadata.id)
    if key is not None and key[0] == live.log.run:
        return
    causes: tuple[Cause, ...] = (key,) if key is not None else ()
    waiting = list(live.state.calls.values())
    person = doc.metadata.sender == Entity.USER and key is None
    text = doc.content or ("" if doc.oai_tool_id2result else "\n".join(map(to_json, doc.tool_messages)))
    if waiting and not person:
        calls = [OpenAIToolCall(id=str(call.seq), function=LLMFunctionCall(call.name)) for call in waiting]
        if doc.oai_tool_id2result and text == together(doc.oai_tool_id2result):
            text = ""  # the text only repeats the results
        text, several, one = process_tool_results(text, doc.oai_tool_id2result, calls)
        results = several or ({one: text} if one is not None else {})
        text = "" if one is not None else text
        for call in waiting:
            content = ToolResultContent(call=call.seq, tool_result=results.get(str(call.seq), NEVER), outcome="ok")
            live.write(content, call.seq, *causes)
    files = doc.files or None
    if person:
        live.write(UserContent(value=text, parts=files))
    elif text or files or not waiting:
        name = doc.metadata.sender_name or str(doc.metadata.sender)
        live.write(SystemContent(value=text, parts=files, source=[name]), *causes)
    live.absorb()


def take_in_answer(context: RunContext, doc: ChatDocument) -> None:
    """Write a sub-task's answer as the result of the model's tool calls that the sub-task answered.

    This is needed if a person's message `doc` came after that answer, but before the model's next request: then the
    calls have no result yet. Otherwise nothing is done.
    """
    calls, answer = set(context.live.state.calls), None
    for each in reversed(context.trail if calls else ()):
        key = id_of(each.metadata.id)
        if key is not None and key[0] != context.live.log.run:
            answer = each
        elif each.metadata.sender == Entity.LLM and each.metadata.calls:
            if answer is not None and answer is not doc and calls & {*each.metadata.calls}:
                take_in_document(context, answer)
            return


async def ask(context: RunContext, choice: Any = "auto") -> list[Entry]:
    """Ask the model until its reply fits the answer type, or no more corrections are allowed. Return the new entries.

    Args:
        choice: whether the model may, must or must not call a tool, in the provider's form.
    """
    agent, entries = context.agent, list(context.done)
    if choice != "auto" and isinstance(agent, Described):
        agent = msgspec.structs.replace(agent, choice=choice)
    while True:
        last = next((each.content for each in reversed(entries) if _completes(each)), None)
        if not isinstance(last, ChatCompletionContent):
            entries += await _reply(context, agent)
            continue
        problem = _problem(agent, entries, last)
        corrected = sum(_completes(each) and isinstance(each.content, SystemContent) for each in entries)
        if problem is None or corrected >= agent.policy.retry.corrections:
            return entries[len(context.done) :]
        entries += await perform(agent, Correct(problem), context.live)


async def _reply(context: RunContext, agent: Agent) -> list[Entry]:
    """Send requests to the model until a reply is recorded, and return the entries of the last request."""
    live, entries = context.live, list[Entry]()
    before, turn = live.state.answered, live.state.turn
    assert turn is not None
    while live.state.answered == before or asks_again(agent, turn):
        move, entries = await step(agent, live, decide_request)
        if isinstance(move, Wait | Finish):
            raise leave(context, move)
    return entries


def _completes(entry: Entry) -> bool:
    """Return whether an entry is a reply of the model, or a message that asks the model to correct its reply."""
    content = entry.content
    return isinstance(content, ChatCompletionContent) or (isinstance(content, SystemContent) and bool(content.corrects))


def _problem(agent: Agent, entries: Sequence[Entry], reply: ChatCompletionContent) -> str | None:
    """Return why a reply is not of the agent's answer type; `None` if the reply is of that type or calls a tool."""
    if agent.answer_type is None or isinstance(entries[-1].content, ToolCallContent):
        return None
    try:
        typed(agent, agent.answer_text(reply.output))
    except BadArguments as wrong:
        return str(wrong)
    return None


def typed(agent: Agent, text: str) -> Any:
    """Return a text as a value of the agent's answer type. The wrapper `{"value": …}` around it may be missing.

    Raises:
        BadArguments: the text does not fit the type. The error's message tells the model why.
    """
    assert agent.answer_type is not None
    try:
        return agent.answer_type.read(text)
    except BadArguments:
        with suppress(ValueError, RecursionError, BadArguments):
            return agent.answer_type.given(json.loads(text))
        raise


def said(context: RunContext, done: Sequence[Entry], tools: Tools) -> ChatDocument:
    """Return the last reply among the entries `done` as a document, with its valid tool calls as tool messages."""
    completions = [entry for entry in done if isinstance(entry.content, ChatCompletionContent)]
    entry, calls = completions[-1], [each for each in done if isinstance(each.content, ToolCallContent)]
    content = entry.content
    assert isinstance(content, ChatCompletionContent)
    thoughts = [each.content.value for each in done if isinstance(each.content, ThoughtContent)]
    native = context.agent.formats().reader() is None
    made = [
        ReplyCall(call.tool_name, (call.meta or {}).get("raw_args") or observation_text(call.tool_args), f"{each.seq}")
        for each in calls
        if isinstance(call := each.content, ToolCallContent)
    ]
    reply = Reply(
        text=content.output if made and not native else context.agent.answer_text(content.output),
        calls=tuple(made),
        thought="\n".join(thoughts) or None,
        finish_reason=content.finish_reason,
        usage=content.usage,
    )
    recognize = context.config.recognize_recipient_in_content
    doc = ChatDocument.from_LLMResponse(reply, tools=tools, recognize_recipient_in_content=recognize)
    if not native:
        doc.oai_tool_calls = None
    for each in calls:
        call = each.content
        assert isinstance(call, ToolCallContent)
        tried = attempt(call.tool_name, call.tool_args, tools)
        if call.status != "error" and tried.tool is not None:
            doc.tool_messages.append(tried.tool)
            doc.metadata.calls.append(each.seq)
    if context.agent.answer_type is not None and not calls:
        with suppress(BadArguments):  # then the document has only the text
            doc.content_any = typed(context.agent, doc.content)
    doc.metadata.id = entry.id
    return doc


def is_own(context: RunContext, doc: ChatDocument) -> bool:
    """Return whether a document is the model's reply in this run, and its tool calls are entries of this run."""
    key = id_of(doc.metadata.id)
    if key is None or key[0] != context.live.log.run or doc.metadata.sender != Entity.LLM:
        return False
    since = any(seq > key[1] for seq in context.live.state.calls)  # malformed calls count, too
    return bool(doc.metadata.calls or doc.oai_tool_calls or since)


def call_of(context: RunContext, doc: ChatDocument, tools: Sequence[ToolForm]) -> None:
    """Write `tools`, tool messages of the document `doc`, as tool calls of this run. Then this agent can run them."""
    above = id_of(doc.metadata.parent_id)
    made_of = [(above[0], seq) for seq in doc.metadata.calls] if above is not None else []
    given, messages = cause_of(doc.metadata.id, context.live.log.run), doc.tool_messages
    for message in tools:
        content = ToolCallContent(tool_name=facts_of(type(message)).name, tool_args=arguments_of(message))
        place = next((n for n, each in enumerate(messages) if each is message), len(made_of))
        context.done.append(context.live.write(content, *given, *made_of[place : place + 1]))
    if tools:
        context.live.absorb()


def open_calls(context: RunContext, *, mine: bool) -> list[OpenCall]:
    """Return the calls without a result that this response has to handle.

    Args:
        mine: true for all open calls of the run; false for only those that this response made from a document.
    """
    made = {each.seq for each in context.done if isinstance(each.content, ToolCallContent)}
    return [call for call in context.live.state.calls.values() if mine or call.seq in made]


def refuse(context: RunContext, calls: Sequence[OpenCall], text: str) -> list[Entry]:
    """Write an error as the result of each call instead of running it, and return the entries of the results."""
    made = []
    for call in calls:
        said = text.replace("{name}", call.name)
        content = ToolResultContent(call=call.seq, tool_result=said, status="error", outcome="error")
        made.append(context.live.write(content, call.seq))
    context.live.absorb()
    return made


async def handle(context: RunContext, handled: Collection[str], *, mine: bool = True) -> list[Entry]:
    """Run the open calls of the tools named in `handled`, and return the entries of their results.

    A call that the model wrote wrongly gets an error as its result. If a call waits for a person or an event, or the
    run must end, the exception of `working.leave` is raised. For `mine`, see `open_calls`.
    """
    live, made = context.live, list[Entry]()
    own = msgspec.structs.replace(context.agent, tools=[tool for tool in context.agent.tools if tool.name in handled])
    for call in [call for call in open_calls(context, mine=mine) if not call.good]:
        made += refuse(context, [call], call.error or NEVER)
    while left := [call for call in open_calls(context, mine=mine) if call.name in handled]:
        move, entries = await step(own, live, decide_calls)
        made += entries
        if isinstance(move, Wait | Finish):
            raise leave(context, move)
        if move is None:
            made += refuse(context, left, NEVER)
    return [each for each in made if isinstance(each.content, ToolResultContent)]


def answered(
    context: RunContext,
    results: Sequence[Entry],
    tools: Tools,
    name: str,
    ids: Sequence[str | None] | None = None,
) -> ChatDocument:
    """Return a document that contains tool results. `name` is the name of its sender.

    A single result becomes the content. Several results go into `oai_tool_id2result`, in the order of their calls.

    Args:
        ids: the ids of the calls, in the order in which they were made, if the calls were read from a document; `None`
            stands for a call that had no id there. Leave `ids` out if the calls are part of the model's own reply.
    """
    results = sorted(results, key=lambda each: getattr(each.content, "call", None) or 0)  # a crash may mix the order
    contents = [each.content for each in results if isinstance(each.content, ToolResultContent)]
    documents = [each.document for each in contents if isinstance(each.document, Mapping)]
    handed = _handed(context)
    made = [each.seq for each in context.done if isinstance(each.content, ToolCallContent)]
    given: dict[int, str | int] = {seq: id for seq, id in zip(made, ids or (), strict=False) if id is not None}
    alone = len(contents) == 1 and len(handed) < 2
    if len(contents) == 1 and documents:
        doc = from_state(documents[0], tools)
    else:
        meta = ChatDocMetaData(sender=Entity.AGENT)
        known = given | handed
        texts = {str(known.get(each.call or 0, each.call)): observation_text(each.tool_result) for each in contents}
        doc = ChatDocument(metadata=meta)
        if alone:
            value = contents[0].tool_result
            doc.content, doc.content_any = next(iter(texts.values())), None if isinstance(value, str) else value
            doc.metadata.oai_tool_id = next(iter(texts))
        else:
            doc.oai_tool_id2result = texts
            native = context.agent.formats().reader() is None if ids is None else bool(given)
            doc.content = together(texts) if handed or not native else ""
    doc.metadata.id, doc.metadata.sender_name = results[-1].id, doc.metadata.sender_name or name
    return doc


def together(results: Mapping[str, str]) -> str:
    """Return several results as one text, separated by empty lines."""
    return "\n\n".join(results.values())


def _handed(context: RunContext) -> dict[int, int]:
    """Return the tool calls that this task runs for its parent task.

    Returns:
        A dict from a call's seq in this run to its seq in the parent's run.
    """
    opened = context.live.state.opened
    above = opened.parent_run if opened is not None else None
    calls = [each for each in context.done if isinstance(each.content, ToolCallContent)]
    return {
        each.seq: cause[1] for each in calls for cause in each.causes if isinstance(cause, tuple) and cause[0] == above
    }
