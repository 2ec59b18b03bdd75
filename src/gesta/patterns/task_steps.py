"""One step of a task: who can answer the message that waits is asked in turn, until somebody's answer is valid.

What somebody answered is an act on record. The variables here are made again from the acts when a task that was broken
off is run again, so they are nothing that could be lost.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from gesta.acts import Act
from gesta.desk import Desk
from gesta.entry import Cause
from gesta.formatter import observation_text
from gesta.kinds import ChatCompletionContent, Content, EndContent, SystemContent, ToolResultContent, UserContent
from gesta.patterns.chat import LITERAL, ChatAgent
from gesta.patterns.chat_config import ChatAgentConfig, Responder, TaskConfig
from gesta.patterns.chat_document import (
    USER_QUIT_STRINGS,
    ChatDocument,
    Entity,
    StatusCode,
    from_state,
    to_state,
)
from gesta.patterns.done_sequences import DoneSequence, Response, matched, parse_done_sequences
from gesta.patterns.facts import facts_of
from gesta.patterns.orchestration import Effect, FinalResultTool, PassTool, effect_of
from gesta.patterns.responding import id_of
from gesta.patterns.signals import Routing, parse_routing
from gesta.patterns.tool_message import ToolForm, to_json
from gesta.patterns.toolset import DOCUMENT
from gesta.patterns.working import Seat
from gesta.policy import Spelled
from gesta.verbs import Verbs

OWN = (Entity.AGENT, Entity.LLM, Entity.USER)


class Rules(Struct, frozen=True, kw_only=True):
    """What holds for one run."""

    turns: int = -1
    max_tokens: int = 0
    restart: bool = True


class Steps(Struct, eq=False, metaclass=Spelled):
    """Settings of a task, and where it stands while it runs."""

    agent: ChatAgent | None = None
    name: str = ""
    llm_delegate: bool = False
    """Who seeks answers and says when the task is done: its model if true, else the user."""
    single_round: bool = False
    """Done after one message of who seeks answers."""
    system_message: str = ""
    user_message: str | None = None
    restart: bool = True
    """Whether each run begins without what was said before."""
    default_human_response: str | None = None
    interactive: bool = True
    """Whether a person gets a chance after each answer that is not a person's."""
    only_user_quits_root: bool = True
    """Whether an interactive task that no other runs is ended by a person alone."""
    erase_substeps: bool = False
    """Whether the model forgets, when the task is done, what was said between its question and its result."""
    allow_null_result: bool = False
    """Whether no answer is an answer."""
    max_stalled_steps: int = 5
    """Steps without an answer after which the task ends."""
    default_return_type: Any = None
    done_if_no_response: Sequence[Responder] = ()
    done_if_response: Sequence[Responder] = ()
    config: TaskConfig = field(default_factory=TaskConfig)
    sub_tasks: list[Any] = field(default_factory=list)
    """Set by `add_sub_task`."""
    as_sub: TaskConfig | None = None
    """Its settings as a sub-task, where they are others."""

    # where it stands; made anew by each run

    status: StatusCode | None = None
    """How the last run ended."""
    rules: Rules = field(default_factory=Rules)
    verbs: Any = None
    caller: Any = None
    """The task that runs it."""
    known: dict[str, type[ToolForm]] = field(default_factory=dict)
    pending_message: ChatDocument | None = None
    """What waits for an answer."""
    pending_sender: Responder = Entity.USER
    n_stalled_steps: int = 0
    human_tried: bool = False
    is_done: bool = False
    trail: list[ChatDocument] = field(default_factory=list)
    """Messages that waited, in order."""
    responses: list[Response] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """What the model said without tools."""
    asked: int = 0
    """Responders that were asked."""
    sequences: list[DoneSequence] = field(default_factory=list)

    def begin(self, verbs: Verbs, caller: "Steps | None", tools: Mapping[str, type[ToolForm]]) -> None:
        """Set the variables of a run."""
        self.verbs, self.caller, self.known, self.asked = verbs, caller, dict(tools), 0
        self.pending_message, self.pending_sender, self.n_stalled_steps = None, Entity.USER, 0
        self.human_tried = self.is_done = False
        self.trail, self.responses, self.texts = [], [], []
        self.sequences = list(parse_done_sequences(self.config.done_sequences or (), self.chat.llm_tools_map))

    @property
    def chat(self) -> ChatAgent:
        """Its agent."""
        assert self.agent is not None
        return self.agent

    @property
    def settings(self) -> ChatAgentConfig:
        """Settings of the agent while it is in this task; the agent itself keeps its own."""
        given: dict[str, Any] = {"name": self.name}
        given |= {"system_message": self.system_message} if self.system_message else {}
        given |= {"user_message": self.user_message} if self.user_message is not None else {}
        return msgspec.structs.replace(self.chat.config, **given)

    # one step

    async def step_async(self) -> None:
        """Ask who can answer in turn, until an answer is valid."""
        self.is_done, tried, no_answer = False, self.human_tried, None
        self.human_tried = False
        pending = self.pending_message
        if pending is not None and not self._known(pending.metadata.recipient):
            text = f"Invalid recipient: {pending.metadata.recipient}"
            await self._accept(Entity.AGENT, self.chat.create_agent_response(text))
            return
        attempted = pending is not None and self.chat.has_tool_message_attempt(pending)
        people: list[Responder] = [] if tried or attempted else [Entity.USER]
        for r in [*people, Entity.AGENT, Entity.LLM, *self.sub_tasks]:
            if not self._can_respond(r):
                continue
            self.human_tried = r is Entity.USER
            result = await self._response(r)
            self._remember(r, result)
            routing = self._routing(result)
            if result is not None and routing.no_answer:
                no_answer = r, result
            if routing.passes and not routing.recipient:
                continue
            self.is_done = self._is_done_response(result, r)
            if self.valid(result, r):
                await self._accept(r, result)
                return
            if self.is_done:
                return
        if no_answer is not None:
            await self._accept(*no_answer)
            return
        self.n_stalled_steps += 1
        if self.allow_null_result:
            asked = Entity.LLM if self.pending_sender == Entity.USER else Entity.USER
            self.pending_sender = asked
            self.pending_message = self.chat.response_template(asked, "DO-NOT-KNOW")

    async def _response(self, r: Responder) -> ChatDocument | None:
        """Have one responder answer, as an act: what is on record of it is not done again."""
        self.asked += 1
        name = f"{self.asked}. {r if r in OWN else r.name}"
        if r not in OWN:
            return await self._sub_response(r, name)
        respond = dict(self.chat.entity_responders_async())[r]
        pending = self.pending_message

        async def work(desk: Desk, act: Act) -> tuple[EndContent, tuple[Cause, ...]]:
            seat = Seat(desk, self.verbs.agent, self.settings, self.verbs, act.entries)
            seat.interactive, seat.default_human_response = self.interactive, self.default_human_response
            with self.chat.at(seat):
                doc = await respond(pending)
            if doc is None:
                return EndContent(), ()
            self._interpret(doc)
            key = id_of(doc.metadata.id)
            return EndContent(state=slim(doc, desk, act)), (key[1],) if key and key[0] == desk.log.run else ()

        act = await self.verbs.act(name, work)
        state = act.end.state if act.end is not None else None
        return None if state is None else whole(state, act, self.known)

    async def _sub_response(self, sub: Any, name: str) -> ChatDocument | None:
        """Have a sub-task answer, in a run of its own that goes on."""
        pending = self.pending_message or self.chat.create_user_response("")
        text = pending.content or "\n".join(map(to_json, pending.tool_messages))
        content = SystemContent(value=text, parts=pending.files or None, extra={DOCUMENT: short(pending)})
        key = id_of(pending.metadata.id)
        causes = [key[1] if key[0] == self.verbs.desk.log.run else key] if key is not None else []
        agent = sub.as_agent(self)
        result = await self.verbs.go_on(agent, content, name, thread=sub.name, causes=causes)
        if not result.ok or not isinstance(result.value, Mapping):
            return None
        doc = from_state(result.value, self.known | sub.all_tools())
        doc.metadata.sender_name = sub.name
        final = any(isinstance(each, FinalResultTool) for each in doc.tool_messages)
        doc.metadata.status = StatusCode.DONE if final else None
        cause = self.verbs.desk.state.acts.named[name].entries[-1].causes[0]
        doc.metadata.id = f"{cause[0]}.{cause[1]}" if isinstance(cause, tuple) else ""
        return doc

    def _interpret(self, doc: ChatDocument) -> None:
        """Do what a message that steers the task says: give content, pass on what waits, or address somebody."""
        found = [(each, effect) for each in doc.tool_messages if (effect := effect_of(each)) is not None]
        if doc.metadata.sender != Entity.AGENT or not found:
            return
        message, effect = found[0]
        if effect.gives == "pending":
            before = next((each for each in reversed(self.trail) if not _passes(each)), None)
            doc.content = before.content if before is not None else ""
            doc.tool_messages = list(before.tool_messages) if before is not None else []
            doc.metadata.block = Entity.LLM if not effect.to and not effect.ends else None
        elif effect.gives == "content":
            value = getattr(message, "content", "")
            doc.content = observation_text(value) if value is not None else ""
            doc.content_any = None if isinstance(value, str) else value
            doc.tool_messages = list(getattr(message, "tools", ()))
        else:
            doc.content, doc.tool_messages = "", [message]
        if effect.speaker == "LLM":
            doc.metadata.sender = Entity.LLM
        doc.metadata.recipient = str(getattr(message, effect.to)) if effect.to else doc.metadata.recipient
        doc.metadata.status = StatusCode.DONE if effect.ends else None

    async def _accept(self, r: Responder, result: ChatDocument | None) -> None:
        """Make an answer the message that waits."""
        assert result is not None
        routing = self._routing(result)
        if routing.recipient:
            to_self = routing.passes
            if to_self and self.pending_message is not None:
                result = msgspec.structs.replace(self.pending_message, metadata=result.metadata)
            else:
                result.content = routing.content
            result.metadata.recipient = routing.recipient
        self.pending_sender = r
        self.pending_message = result
        self.trail.append(result)
        self.n_stalled_steps = 0
        if r == Entity.LLM and not self.chat.has_tool_message_attempt(result):
            self.texts.append(str(result))

    def _remember(self, r: Responder, result: ChatDocument | None) -> None:
        """Keep what done sequences look at."""
        doc = result
        tools = [facts_of(type(each)).name for each in doc.tool_messages] if doc is not None else []
        tools += [type(each).__name__ for each in doc.tool_messages] if doc is not None else []
        sender = str(doc.metadata.sender) if doc is not None else str(r) if r in OWN else r.name
        self.responses.append(
            Response(
                sender=sender,
                responder="" if r in OWN else r.name,
                tools=tools,
                content=doc.content if doc is not None else "",
                none=doc is None,
            )
        )

    # what holds

    def _can_respond(self, r: Responder) -> bool:
        pending = self.pending_message
        if r is self.pending_sender or (r in OWN and self.pending_sender in OWN and r == self.pending_sender):
            return False
        to = pending.metadata.recipient.lower() if pending is not None else ""
        if pending is not None and r in OWN and pending.metadata.block == r:
            return False
        if r == Entity.USER:
            return (self.interactive and to in ("", "user", self.name.lower())) or to == "user"
        names = {"", self.name.lower(), str(r).lower()} if r in OWN else {"", r.name.lower()}
        if to not in names:
            return False
        if r in OWN:
            return True
        sub: Any = r
        return pending is None or bool(sub.chat.can_respond(pending))

    def _known(self, recipient: str) -> bool:
        names = {"", self.name.lower(), *(str(each).lower() for each in OWN), *(t.name.lower() for t in self.sub_tasks)}
        names |= {self.caller.name.lower()} if self.caller is not None else set()
        return recipient.lower() in names

    def _routing(self, doc: ChatDocument | None) -> Routing:
        """Read the signals in what a model or a person said; what tools gave is data."""
        if doc is None or not self.config.recognize_string_signals:
            return Routing(content=doc.content if doc is not None else "")
        data = doc.metadata.oai_tool_id or doc.oai_tool_id2result is not None or doc.metadata.source == LITERAL
        if data or doc.tool_messages:
            return Routing(content=doc.content)
        return parse_routing(doc.content, self.config.addressing_prefix)

    def valid(self, result: ChatDocument | None, r: Responder) -> bool:
        """Say whether an answer counts; override it for other rules."""
        if self._is_done_response(result, r):
            return result is not None
        return _fills(result) and not self._routing(result).no_answer

    def _is_done_response(self, result: ChatDocument | None, r: Responder) -> bool:
        full = _fills(result)
        if (full and r in self.done_if_response) or (not full and r in self.done_if_no_response):
            return True
        if result is None:
            return False
        return self._routing(result).done or result.metadata.status == StatusCode.DONE

    def user_quit(self, result: ChatDocument) -> bool:
        """Say whether a person ended the task; a word in quotes does not."""
        meta = result.metadata
        return meta.sender == Entity.USER and meta.source != LITERAL and result.content in USER_QUIT_STRINGS

    def sequence_done(self) -> DoneSequence | None:
        """Give the done sequence that the last answers make, if one does."""
        return matched(self.sequences, self.responses)

    def user_can_end(self) -> bool:
        """Say whether only a person ends the task."""
        return self.caller is None and self.interactive and self.only_user_quits_root


def _fills(doc: ChatDocument | None) -> bool:
    """Say whether a document has anything in it; the result of a call counts though it be empty."""
    if doc is None:
        return False
    results = doc.metadata.oai_tool_id or doc.oai_tool_id2result or doc.oai_tool_calls or doc.metadata.calls
    return bool(doc.content.strip() or doc.content_any is not None or doc.tool_messages or results or doc.files)


def _passes(doc: ChatDocument) -> bool:
    effects = [effect_of(each) for each in doc.tool_messages]
    return any(isinstance(each, Effect) and each.gives == "pending" for each in effects) or isinstance(doc, PassTool)


def slim(doc: ChatDocument, desk: Desk, act: Act) -> dict[str, Any]:
    """Write a document for the record: without what is empty, and without text that stands in its own entry."""
    desk.absorb()
    state = short(doc)
    if doc.content and doc.content == _own_text(doc.metadata.id, act):
        del state["content"]
    return state


def short(doc: ChatDocument) -> dict[str, Any]:
    """Write a document for the record, without what is empty."""
    state = {key: value for key, value in to_state(doc).items() if value not in (None, "", [], "auto", False)}
    state["metadata"] = {key: value for key, value in state["metadata"].items() if value not in (None, "", [], False)}
    return state


def whole(state: Mapping[str, Any], act: Act, tools: Mapping[str, type[ToolForm]]) -> ChatDocument:
    """Make a document of what `slim` wrote."""
    metadata = state.get("metadata", {})
    text = state.get("content", _own_text(str(metadata.get("id", "")), act) if "content" not in state else "")
    return from_state({**state, "content": text}, tools)


def _own_text(id: str, act: Act) -> str:
    key = id_of(id)
    found = [each.content for each in act.entries if key is not None and each.seq == key[1]]
    content: Content | None = found[0] if found else None
    match content:
        case ChatCompletionContent(output=text) | UserContent(value=text) | SystemContent(value=text):
            return text
        case ToolResultContent(tool_result=value):
            return observation_text(value)
    return ""
