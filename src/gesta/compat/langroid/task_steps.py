"""One step of a task: ask the responders in turn for an answer to the waiting message, until an answer is valid.

A run is the stored list of a task's entries; each sub-task has a child run of its own. Messages are documents, with a
sender and a recipient. Each answer is a recorded workflow step, named after the number of the task's step and the
responder. So an interrupted step continues with the responder that was being asked, even if the code has changed in the
meantime.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gesta.compat.langroid.chat_config import Responder
from gesta.compat.langroid.chat_document import ChatDocument, Entity, StatusCode, from_state, to_state
from gesta.compat.langroid.done_sequences import Response
from gesta.compat.langroid.facts import facts_of, shaped
from gesta.compat.langroid.orchestration import FinalResultTool, RewindTool
from gesta.compat.langroid.overriding import overrides, respond
from gesta.compat.langroid.responders import ONE_TOOL
from gesta.compat.langroid.responding import id_of
from gesta.compat.langroid.signals import NO_ANSWER
from gesta.compat.langroid.steering import steer
from gesta.compat.langroid.task_rules import OWN, TaskRules, fills
from gesta.compat.langroid.tool_message import ToolForm, to_json
from gesta.compat.langroid.working import RunContext
from gesta.decide.compaction import hiding
from gesta.decide.open_call import placeholder
from gesta.entry import Cause, Entry
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Content,
    EndContent,
    SystemContent,
    ToolResultContent,
    UserContent,
)
from gesta.perform.execution import LiveRun
from gesta.prompt import observation_text
from gesta.state.steps import WorkflowStep
from gesta.workflow.verbs import Verbs

ENDED = "no result of "
"""Beginning of the name of a note that serves as the result of a call.

The call is from an earlier turn and never ran.
"""
ASKED = "question"
"""Name of the note with the question, if that is written once more, after the user message."""


class Steps(TaskRules, eq=False):
    """Base class of `Task`: the methods that run its steps."""

    async def step_async(self) -> None:
        """Run one step: ask the possible responders in turn, until an answer is valid."""
        self.steps += 1
        self.is_done, tried = False, self.human_tried
        no_answer = spare = None
        self.human_tried = False
        pending = self.pending_message
        if pending is not None and not self._known(pending.metadata.recipient):
            text = f"Invalid recipient: {pending.metadata.recipient}"
            await self._accept(Entity.AGENT, self.chat.create_agent_response(text))
            return
        attempted = pending is not None and self.chat.has_tool_message_attempt(pending)
        people: list[Responder] = [] if tried or attempted else [Entity.USER]
        may_change = False
        for r in [*people, Entity.AGENT, Entity.LLM, *self.sub_tasks]:
            if not self._can_respond(r):
                continue
            may_change |= r != Entity.AGENT
            self.human_tried = r is Entity.USER
            result = await self._response(r)
            self._remember(r, result)
            routing = self._routing(result)
            if result is not None and routing.no_answer:
                no_answer = r, result
            if routing.passes and not routing.recipient:
                self.is_done = routing.done
                if self.is_done:
                    return
                continue
            self.is_done = self._is_done_response(result, r)
            if result is not None and self._is_spare(result, r):
                spare = spare or (r, result)
                continue
            if self.valid(result, r):
                await self._accept(r, result)
                return
            if self.is_done:
                return
        if (last := spare or no_answer) is not None:
            await self._accept(*last)
            return
        self.n_stalled_steps += 1
        if self.allow_null_result:
            self.pending_sender = Entity.LLM if self.pending_sender == Entity.USER else Entity.USER
            self.pending_message = self.chat.response_template(self.pending_sender, NO_ANSWER)
            self.trail.append(self.pending_message)
        elif not may_change:
            self.n_stalled_steps = max(self.n_stalled_steps, self.max_stalled_steps)

    def _is_spare(self, result: ChatDocument, r: Responder) -> bool:
        """Return whether a result is only the last message of a sub-task that gave up because it made no progress.

        Such a message is used as the answer only if there is no other valid answer.
        """
        return not self.is_done and r not in OWN and fills(result) and result.metadata.status is StatusCode.STALLED

    async def _response(self, r: Responder) -> ChatDocument | None:
        """Return the answer of one responder; `None` if it has none. A recorded answer is not requested again."""
        name = f"{self.steps}. {r if r in OWN else r.name}"
        if r not in OWN:
            return await self._sub_response(r, name)
        if r == Entity.AGENT and self._idle():
            return None
        pending = self.pending_message

        async def work(live: LiveRun, step: WorkflowStep) -> tuple[EndContent, tuple[Cause, ...]]:
            context = RunContext(live, self.bound(), self.settings, self.verbs, step.entries)
            context.interactive, context.default_human_response = self.interactive, self.default_human_response
            context.trail = self.trail
            with self.chat.at(context):
                doc = await respond(self.chat, r, pending)
            if doc is None:
                return EndContent(), ()
            if pending is not None and not doc.metadata.parent_id:
                doc.metadata.parent_id = pending.metadata.id
            self._interpret(doc)
            if r == Entity.AGENT and any(isinstance(each, RewindTool) for each in doc.tool_messages):
                with self.chat.at(context):
                    await self.chat.rewind(doc)
            if r == Entity.AGENT:
                self._hand_on(doc, live)
            key = id_of(doc.metadata.id)
            return EndContent(state=slim(doc, live, step)), (key[1],) if key and key[0] == live.log.run else ()

        step = await self.verbs.step(name, work)
        state = step.end.state if step.end is not None else None
        if state is None:
            return None
        doc, wanted = whole(state, step, self.known), self.chat.config.output_format
        doc.content_any = doc.content_any if wanted is None else shaped(doc.content_any, wanted) or doc.content_any
        return doc

    async def _sub_response(self, sub: Any, name: str) -> ChatDocument | None:
        """Return the answer of a sub-task; `None` if there is none. All its answers are turns of one child run.

        Args:
            name: name of the workflow step in which the sub-task is asked.
        """
        pending = self.pending_message or self.chat.create_user_response("")
        if len(pending.metadata.calls) > 1 and not self.config.allow_subtask_multi_oai_tools:
            names = [facts_of(type(each)).name for each in pending.tool_messages]
            said = [ONE_TOOL.replace("{name}", each) for each in names]
            results = dict(zip(map(str, pending.metadata.calls), said, strict=False))
            return self.chat.create_agent_response(oai_tool_id2result=results)
        text = pending.content or "\n".join(map(to_json, pending.tool_messages))
        content = SystemContent(value=text, parts=pending.files or None, document=short(pending))
        key = id_of(pending.metadata.id)
        causes = [key[1] if key[0] == self.verbs.live.log.run else key] if key is not None else []
        agent = sub.as_agent(self, first=sub.name not in self.called)
        self.called.add(sub.name)
        result = await self.verbs.go_on(agent, content, name, thread=sub.name, causes=causes)
        if result.reason == "failed":
            doc = self.chat.create_user_response(f"Task {sub.name!r} failed: {result.text}")
        elif not result.ok or not isinstance(result.value, Mapping):
            return None
        else:
            doc = from_state(result.value, self.known | sub.all_tools())
        if self.callbacks.show_subtask_response is not None:
            is_tool = bool(doc.tool_messages)
            self.callbacks.show_subtask_response(task=sub, content=doc.content, is_tool=is_tool)
        doc.metadata.sender_name = sub.name
        final = any(isinstance(each, FinalResultTool) for each in doc.tool_messages)
        stalled = doc.metadata.status if doc.metadata.status is StatusCode.STALLED else None
        doc.metadata.status = StatusCode.DONE if final else stalled
        cause = self.verbs.live.state.steps.named[name].entries[-1].causes[0]
        doc.metadata.id = f"{cause[0]}.{cause[1]}" if isinstance(cause, tuple) else ""
        return doc

    def _leave_behind(self, verbs: Verbs) -> None:
        """Write a placeholder as the result of each call of an earlier turn that can no longer be answered.

        A turn is the work on one message to the task. If the task begins anew with each message, the model is not sent
        the earlier turns either.
        """
        state, handled = verbs.live.state, self.chat.llm_tools_handled
        assert state.turn is not None
        begin = state.turn.begin
        if self.forgets and begin > 1:
            _hide(verbs, "restart", 1, begin - 1)
        for call in [call for call in state.calls.values() if call.seq < begin]:
            if self.forgets or call.name in handled or not call.good:  # else the caller of this task may answer it
                verbs.keep(f"{ENDED}{call.seq}", placeholder(verbs.agent, call), [call.seq])
        ended = [entry.seq for name, entry in state.steps.notes.items() if name.startswith(ENDED)]
        if ended and self.forgets:
            _hide(verbs, "restart, calls", min(ended), max(ended))
        self._open(verbs)

    def _open(self, verbs: Verbs) -> None:
        """Show the model the user message of the settings before the question, if it is shown no earlier turn.

        Entries are only added to a run, so the question is hidden, and written once more after the user message.
        """
        asked, first, state = verbs.handed(), self.settings.user_message, verbs.live.state
        assert state.turn is not None
        begins = (self.forgets or state.turn.begin == 1) and (not state.steps.named or ASKED in state.steps.notes)
        if not first or not begins or asked is None or not isinstance(asked.content, UserContent | SystemContent):
            return
        if asked.content.value == first:
            return
        _hide(verbs, f"{ASKED}, hidden", asked.seq, asked.seq)
        verbs.keep("user message", SystemContent(value=first, source=[self.name], history=True))
        value, parts = asked.content.value, asked.content.parts
        again = SystemContent(value=value, parts=parts, source=[self.name], history=True)
        verbs.keep(ASKED, again, [asked.seq])

    def _erase(self, verbs: Verbs, result: ChatDocument) -> None:
        """Leave the messages between the question and the result out of the model's later prompts.

        If the result is not a message of the model, it is written as an answer, so that later prompts contain it.
        """
        live, last = verbs.live, self.pending_message
        key = id_of(last.metadata.id) if last is not None else None
        said = last is not None and last.metadata.sender == Entity.LLM and not last.metadata.calls
        to = key[1] - 1 if said and key is not None else live.log.journal.head
        again = live.state.steps.notes.get(ASKED)
        asked = again.seq if again is not None else verbs.question
        hidden = _hide(verbs, "erase", asked + 1, to)
        if not said and self.caller is not None:
            content = AssistantContent(value=result.content or observation_text(short(result)), history=True)
            verbs.keep("kept", content, [hidden.seq, *verbs.sources])

    def _interpret(self, doc: ChatDocument) -> None:
        """Change a document as the steering tool message in it demands, such as `DoneTool`."""
        steer(doc, self.trail)

    def _hand_on(self, doc: ChatDocument, live: LiveRun) -> None:
        """Add the calls that have no result, and that only sub-tasks can handle, to `doc`, the agent's answer."""
        theirs = {name for sub in self.sub_tasks for name in sub.chat.llm_tools_handled} - self.chat.llm_tools_handled
        asked = self.pending_message.metadata.calls if self.pending_message is not None else []
        for call in list(live.state.calls.values()):
            if call.good and call.name in theirs and call.seq in asked and not doc.metadata.status:
                doc.tool_messages.append(facts_of(self.known[call.name]).build(call.final_args))
                doc.metadata.calls.append(call.seq)
                doc.metadata.tools_from_agent = True

    async def _accept(self, r: Responder, result: ChatDocument | None) -> None:
        """Set `pending_message` to a responder's answer, so that the next step asks for an answer to it.

        Args:
            result: the answer, which must not be `None` here.
        """
        assert result is not None
        routing = self._routing(result)
        if routing.recipient:
            to_self = routing.passes
            if to_self and self.pending_message is not None:
                passed = self.pending_message.metadata
                result = msgspec.structs.replace(self.pending_message, metadata=result.metadata)
                result.metadata.tools_from_agent = passed.tools_from_agent
                result.metadata.tainted |= passed.tainted
            else:
                result.content = routing.content
            result.metadata.recipient = routing.recipient
        self.pending_sender = r
        self.pending_message = result
        self.trail.append(result)
        self.n_stalled_steps = 0
        if r == Entity.LLM and not self.chat.has_tool_message_attempt(result):
            self.texts.append((True, str(result)))
        self.said.append((r == Entity.USER or result.metadata.status == StatusCode.DONE, str(result)))

    def _remember(self, r: Responder, result: ChatDocument | None) -> None:
        """Add a response to `responses`, in which the task looks for done sequences.

        A done sequence (`T, A`) is a pattern of responses that ends a task.

        Args:
            result: the response; `None` if the responder gave none.
        """
        doc = result
        tools = [facts_of(type(each)).name for each in doc.tool_messages] if doc is not None else []
        tools += [type(each).__name__ for each in doc.tool_messages] if doc is not None else []
        sender = str(r) if r in OWN else str(doc.metadata.sender) if doc is not None else r.name
        self.responses.append(
            Response(
                sender=sender,
                responder="" if r in OWN else r.name,
                tools=tools,
                content=doc.content if doc is not None else "",
                none=doc is None,
            )
        )

    # who can answer

    def _can_respond(self, r: Responder) -> bool:
        pending = self.pending_message
        own = isinstance(r, Entity)
        if r is self.pending_sender or (own and r == self.pending_sender):
            return False
        to = pending.metadata.recipient.lower() if pending is not None else ""
        block = pending.metadata.block if pending is not None else None
        if own and block is not None and block == r:
            return False
        if r is Entity.USER:
            asked = (self.interactive and to in ("", self.name.lower())) or to == "user"
            return asked and self.has_person()
        if to not in ("", *((self.name.lower(), str(r).lower()) if own else (r.name.lower(),))):
            return False
        if own:
            return True
        sub: Any = r
        return pending is None or bool(sub.chat.can_respond(pending))

    def _idle(self) -> bool:
        """Return whether no method of the agent can answer the waiting document."""
        chat = self.chat
        methods = ("agent_response", "handle_message", "entity_responders")
        if overrides(
            chat, "handle_message_fallback", "get_tool_messages", *methods, *(f"{each}_async" for each in methods)
        ):
            return False
        if chat.config.handle_llm_no_tool is not None or chat.fallbacks():
            return False
        return not chat.has_tool_message_attempt(self.pending_message)

    def _known(self, recipient: str) -> bool:
        names = {"", self.name.lower(), *(str(each).lower() for each in OWN), *(t.name.lower() for t in self.sub_tasks)}
        names |= {self.caller.name.lower()} if self.caller is not None else set()
        return recipient.lower() in names


def slim(doc: ChatDocument, live: LiveRun, step: WorkflowStep) -> dict[str, Any]:
    """Return a document as JSON values without empty fields, and without its text if an entry of `step` contains it."""
    live.absorb()
    state = {**short(doc), "content": doc.content}
    if doc.content == _own_text(doc.metadata.id, step):
        del state["content"]
    return state


def short(doc: ChatDocument) -> dict[str, Any]:
    """Return a document as JSON values, without empty fields."""
    state = to_state(doc)
    if doc.oai_tool_choice == "auto":
        del state["oai_tool_choice"]
    return _filled(state | {"metadata": _filled(state["metadata"])})


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value or isinstance(value, dict)}


def whole(state: Mapping[str, Any], step: WorkflowStep, tools: Mapping[str, type[ToolForm]]) -> ChatDocument:
    """Return the document that `slim` turned into `state`. A missing text is read from the entries of `step`.

    Args:
        tools: the classes of the tool messages that the document may contain, by name.
    """
    own = _own_text(str(state.get("metadata", {}).get("id", "")), step)
    return from_state({"content": own, **state}, tools)


def _own_text(id: str, step: WorkflowStep) -> str:
    key = id_of(id)
    found = [each.content for each in step.entries if key is not None and each.seq == key[1]]
    content: Content | None = found[0] if found else None
    match content:
        case ChatCompletionContent(output=text) | UserContent(value=text) | SystemContent(value=text):
            return text
        case ToolResultContent(tool_result=value):
            return observation_text(value)
    return ""


def _hide(verbs: Verbs, name: str, first: int, last: int) -> Entry:
    """Leave the entries `first` to `last` out of later prompts, once, under a name. Return the entry that says so."""
    live = verbs.live
    live.absorb()
    made = live.state.steps.notes.get(name)
    content = made.content if made is not None else hiding(live.state, live.prompt, first, last)
    return verbs.keep(name, content)[1]
