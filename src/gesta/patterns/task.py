"""A task has an agent, and other tasks, answer each other until it is done; its result is a document or a typed value.

A task that runs is a run of its own, each answer in it an act on record, and each sub-task a child run. So a task that
was killed is run again with the same message, and goes on in the middle of the answer that was broken off; what was
said is not asked for again, what was done is not done again.
"""

import copy
from typing import Any

from gesta.acting import Stopped
from gesta.agent import Agent
from gesta.codec import encode_content
from gesta.decide import Finish
from gesta.entry import utc_text
from gesta.errors import GestaError
from gesta.holder import Opening
from gesta.kinds import CompactionContent, Error, Reason, SignalContent, UserContent
from gesta.outcome import Outcome
from gesta.patterns.chat import ChatAgent
from gesta.patterns.chat_config import TaskConfig
from gesta.patterns.chat_document import (
    ChatDocMetaData,
    ChatDocument,
    Entity,
    StatusCode,
    from_ChatDocument,
    from_state,
)
from gesta.patterns.facts import facts_of
from gesta.patterns.orchestration import TOOLS, FinalResultTool
from gesta.patterns.responding import id_of
from gesta.patterns.signals import parse_routing
from gesta.patterns.task_steps import Rules, Steps, short
from gesta.patterns.tool_message import ToolForm, to_json
from gesta.patterns.toolset import DOCUMENT
from gesta.record import Record
from gesta.store import Letter
from gesta.verbs import Answer, Verbs

__all__ = ["StatusCode", "Task", "TaskConfig"]

REASONS: dict[StatusCode, Reason] = {
    StatusCode.KILL: "cancelled",
    StatusCode.ERROR: "failed",
    StatusCode.MAX_TOKENS: "budget",
    StatusCode.STALLED: "limit",
    StatusCode.INF_LOOP: "limit",
    StatusCode.MAX_TURNS: "limit",
}
"""How the turn of a task ends that has no result; all else is answered."""


class Task(Steps, eq=False):
    """An agent with a goal, and the tasks that it may hand work to."""

    def __post_init__(self) -> None:
        """Take a name, and an agent if there is none. Raises GestaError for a name that is no name."""
        self.agent = self.agent if self.agent is not None else ChatAgent()
        self.name = self.name or self.agent.config.name
        if not isinstance(self.agent, ChatAgent):
            raise GestaError(f"Task: agent is {type(self.agent).__name__}, expected a ChatAgent.")

    def add_sub_task(self, task: Any) -> None:
        """Add a task, a pair of a task and its settings as a sub-task, or a list of either; they are asked in order.

        Raises:
            GestaError: it is none of these, or a sub-task has that name already.
        """
        if isinstance(task, list):
            for each in task:
                self.add_sub_task(each)
            return
        sub, config = task if isinstance(task, tuple) else (task, None)
        if not isinstance(sub, Task):
            raise GestaError(f"add_sub_task: found {type(sub).__name__}, expected a Task or (Task, TaskConfig).")
        if sub.name.lower() in {each.name.lower() for each in self.sub_tasks}:
            raise GestaError(f"Two sub-tasks of {self.name!r} are named {sub.name!r}. Give one another name.")
        if config is not None:
            sub = copy.copy(sub)
            sub.as_sub = config
        self.sub_tasks.append(sub)

    def clone(self, i: int = 0) -> "Task":
        """Give a task like this, with agents and sub-tasks of its own, named `name-i`."""
        other = copy.copy(self)
        other.agent, other.name = self.chat.clone(i), f"{self.name}-{i}"
        other.sub_tasks = [each.clone(i) for each in self.sub_tasks]
        places = {id(old): new for old, new in zip(self.sub_tasks, other.sub_tasks, strict=True)}
        other.done_if_response = [places.get(id(each), each) for each in self.done_if_response]
        other.done_if_no_response = [places.get(id(each), each) for each in self.done_if_no_response]
        return other

    def __getitem__(self, return_type: Any) -> "Task":
        """Give the same task with a type that its result is to have: `task[int]`."""
        other = copy.copy(self)
        other.default_return_type = return_type
        return other

    # running

    def run(  # the names that users know, here and below
        self,
        msg: Any = None,
        turns: int = -1,
        caller: "Task | None" = None,
        max_cost: float = 0,
        max_tokens: int = 0,
        session_id: str = "",
        allow_restart: bool = True,  # noqa: FBT001, FBT002
        return_type: Any = None,
    ) -> Any:
        """Run the task to its end; see `run_async`."""
        return self.chat.wait_for(
            lambda: self.run_async(msg, turns, caller, max_cost, max_tokens, session_id, allow_restart, return_type),
            "run_async",
        )

    async def run_async(
        self,
        msg: Any = None,
        turns: int = -1,
        caller: "Task | None" = None,
        max_cost: float = 0,
        max_tokens: int = 0,
        session_id: str = "",
        allow_restart: bool = True,  # noqa: FBT001, FBT002
        return_type: Any = None,
    ) -> Any:
        """Run the task to its end, or go on with a run of the same message that was broken off.

        Args:
            msg: text, a document, a tool message or any value; None for the task's user message.
            turns: steps at most; -1 for any number.
            max_tokens: tokens of this task's own model at most; 0 for any number.
            session_id: session of the record; by default the agent's.
            return_type: type of the result; by default `default_return_type`, or else a document.

        Returns:
            The result, or None where there is none; `status` says why.

        Raises:
            GestaError: `max_cost` is given: no prices are known in this release. Or the turn failed.
            TurnOpen: it waits for somebody, or another message is being worked on.
        """
        if max_cost:
            raise GestaError("max_cost: no prices are known in this release; expected max_tokens instead.")
        doc = self._message(msg)
        if doc is not None and doc.metadata.recipient.lower() not in ("", self.name.lower()):
            return None
        self.rules = Rules(turns=turns, max_tokens=max_tokens, restart=allow_restart and self.restart)
        ended = await self._take(doc, session_id)
        return self._result_of(ended, return_type or self.default_return_type)

    async def _take(self, doc: ChatDocument | None, session_id: str) -> Outcome:
        home = self.chat.home
        record, session = home.record, session_id or home.session
        agent = self.as_agent(None)
        run = await record.holder.run_of(session, self.name)
        text = doc.content or "\n".join(map(to_json, doc.tool_messages)) if doc is not None else ""
        turn = (await record.state(run)).turn
        if turn is not None and turn.reason is None and turn.task == text:
            return await record.resume(run, agent)
        extra = (
            {DOCUMENT: short(doc)} if doc is not None and (doc.tool_messages or doc.content_any is not None) else None
        )
        content = UserContent(value=text, parts=doc.files or None if doc is not None else None, extra=extra)
        return await record.holder.take(agent, Opening(name=self.name, session=session, content=content), None)

    def _result_of(self, ended: Outcome, return_type: Any) -> Any:
        """Read the result of a run from its outcome."""
        if ended.reason == "waiting":
            what = ", ".join(f"{each.what} of {each.tool}" for each in ended.waiting)
            raise GestaError(f"Task {self.name!r} waits for {what}: see run {ended.run}, then run it again.")
        if ended.reason != "answered":
            known = {str(each) for each in StatusCode}
            name = ended.error.type if ended.error is not None and ended.error.type in known else "ERROR"
            self.status = StatusCode(name) if ended.reason != "cancelled" else StatusCode.KILL
            if self.status is StatusCode.ERROR:
                raise GestaError(f"Task {self.name!r} failed: {ended.error.message if ended.error else ended.reason}")
            return None
        doc = from_state(ended.value, self.all_tools())
        self.status = doc.metadata.status
        if return_type is None or return_type is ChatDocument:
            return doc
        return from_ChatDocument(doc, return_type)

    def as_agent(self, caller: "Task | None") -> Agent:
        """Give the frozen description of the task: its agent's, with the task as its program."""
        task = self

        async def program(verbs: Verbs, _text: str) -> Answer:
            return await task.play(verbs, caller)

        return self.chat.describe(self.settings, program)

    async def play(self, verbs: Verbs, caller: "Task | None") -> Answer:
        """Take steps until the task is done. This is the program of its run."""
        self.begin(verbs, caller, self.all_tools())
        rules = self.rules if caller is None else Rules(restart=(self.as_sub or self.config).restart_as_subtask)
        if rules.restart:
            self._forget(verbs)
        self.init(None)
        turns = self.turns(rules.turns)
        steps, status = 0, StatusCode.OK
        while True:
            await self.step_async()
            done, status = self.done()
            if done:
                break
            steps += 1
            if 0 < turns <= steps:
                status = StatusCode.FIXED_TURNS
                break
            if self._loops():
                status = StatusCode.INF_LOOP
                break
        result = self.result(status)
        if result is None:
            reason = REASONS.get(status, "limit")
            raise Stopped(Finish(reason, Error(type=str(status), message=f"Task {self.name!r} ended with {status}.")))
        key = id_of(self.pending_message.metadata.id) if self.pending_message is not None else None
        verbs.sources = ((key[1] if key[0] == verbs.desk.log.run else key),) if key is not None else ()
        if self.erase_substeps:
            head = verbs.desk.log.journal.head
            verbs.note("erase", CompactionContent(from_seq=verbs.question + 1, to_seq=head))
        return Answer(result.content, short(result))

    def turns(self, given: int) -> int:
        """Give the number of steps at most; -1 for any."""
        if self.single_round:
            return 2 if self.llm_delegate else 1
        return given

    def init(self, msg: Any = None) -> ChatDocument | None:
        """Make the message that the task begins with: what was handed to its run, or its user message."""
        desk = self.verbs.desk
        turn = desk.state.turn
        assert turn is not None
        written = self.verbs.handed()
        state = (written.content.extra or {}).get(DOCUMENT) if written is not None else None
        if isinstance(state, dict):
            known = [each for each in state.get("tool_messages", ()) if each.get("request") in self.known]
            doc = from_state({**state, "tool_messages": known}, self.known)
            doc.metadata.sender, doc.metadata.recipient, doc.metadata.block = Entity.USER, "", None
            doc.metadata.parent_id = doc.metadata.id
        elif msg is not None or turn.task:
            doc = ChatDocument.from_str(msg if isinstance(msg, str) else turn.task)
        elif self.settings.user_message:
            doc = ChatDocument.from_str(self.settings.user_message)
            written = None
        else:
            return None
        doc.metadata.id = f"{desk.log.run}.{turn.question}" if turn.question and written is not None else ""
        self.pending_message, self.pending_sender = doc, Entity.USER
        self.trail.append(doc)
        return doc

    def _forget(self, verbs: Verbs) -> None:
        """Hide what was said in earlier turns."""
        turn = verbs.desk.state.turn
        assert turn is not None
        if turn.begin > 1:
            verbs.note("restart", CompactionContent(from_seq=1, to_seq=turn.begin - 1))

    def _message(self, msg: Any) -> ChatDocument | None:
        if msg is None or isinstance(msg, ChatDocument):
            return msg
        if isinstance(msg, str):
            return ChatDocument.from_str(msg)
        if isinstance(msg, ToolForm):
            return self.chat.create_user_response(to_json(msg), tool_messages=[msg])
        return self.chat.create_user_response(msg)

    # how it ends

    def done(self, result: ChatDocument | None = None, r: Any = None) -> tuple[bool, StatusCode]:
        """Say whether the task is done, and how; override it for other rules."""
        turn, pending = self.verbs.desk.state.turn, result or self.pending_message
        assert turn is not None
        if turn.cancelled is not None:
            return True, StatusCode.KILL
        if self.config.done_if_tool and pending is not None and self.chat.has_tool_message_attempt(pending):
            return True, StatusCode.DONE
        if self.sequence_done() is not None:
            return True, StatusCode.DONE
        if self.n_stalled_steps and (self.n_stalled_steps >= self.max_stalled_steps or not self.allow_null_result):
            return True, StatusCode.STALLED
        bound = self.rules.max_tokens if self.caller is None else 0
        if bound and turn.tokens_in + turn.tokens_out >= bound:
            return True, StatusCode.MAX_TOKENS
        quit_ = pending is not None and self.user_quit(pending)
        if self.user_can_end() and self.chat.user_can_respond() and self._person():
            return quit_, StatusCode.USER_QUIT if quit_ else StatusCode.OK
        if self.is_done:
            return True, StatusCode.DONE
        if pending is None or quit_:
            return True, StatusCode.USER_QUIT if quit_ else StatusCode.OK
        mine = self.caller is not None and pending.metadata.recipient.lower() == self.caller.name.lower()
        return mine, StatusCode.OK

    def _person(self) -> bool:
        """Say whether there is a person who could end it."""
        chat = self.chat
        given = self.default_human_response is not None or chat.default_human_response is not None
        return given or chat.get_user_response is not None or chat.has_console()

    def result(self, status: StatusCode | None = None) -> ChatDocument | None:
        """Make the result of the message that is last; None where there is none. Override it for other results."""
        last = self.pending_message
        if (
            status in (StatusCode.MAX_TURNS, StatusCode.INF_LOOP, StatusCode.MAX_TOKENS, StatusCode.KILL)
            or last is None
        ):
            return None
        if status is StatusCode.STALLED and last.metadata.sender == Entity.USER:
            return None
        content = last.content
        if self.config.recognize_string_signals and not (last.metadata.oai_tool_id or last.oai_tool_id2result):
            content = parse_routing(content).content if parse_routing(content).done else content
        final = [each for each in last.tool_messages if isinstance(each, FinalResultTool)]
        meta = ChatDocMetaData(
            sender=Entity.USER,
            sender_name=self.name,
            recipient=last.metadata.recipient if self.caller is not None else "",
            block=last.metadata.block,
            status=StatusCode.DONE if final and self.caller is not None else status,
            parent_id=last.metadata.id,
            tools_from_agent=last.metadata.tools_from_agent,
            calls=last.metadata.calls,
        )
        if meta.recipient.lower() == (self.caller.name.lower() if self.caller is not None else ""):
            meta.recipient = ""
        return ChatDocument(
            content="" if final else content,
            content_any=last.content_any,
            tool_messages=final or last.tool_messages,
            oai_tool_id2result=last.oai_tool_id2result,
            files=last.files,
            metadata=meta,
        )

    def _loops(self) -> bool:
        """Say whether the model's texts go round in a circle; calls may repeat, as when something is polled."""
        cycle, times, said = self.config.inf_loop_cycle_len, self.config.inf_loop_wait_factor, self.texts
        for length in range(1, cycle + 1):
            if len(said) >= length * times and said[-length * times :] == said[-length:] * times:
                return True
        return False

    # the rest

    def all_tools(self) -> dict[str, type[ToolForm]]:
        """Give the classes of tool messages that can be in its documents, by name."""
        own = {facts_of(cls).name: cls for cls in TOOLS} | self.chat.llm_tools_map
        for sub in self.sub_tasks:
            own = sub.all_tools() | own
        return own

    def reset_all_sub_tasks(self) -> None:
        """Forget what was said, here and in all sub-tasks."""
        self.chat.init_state()
        for sub in self.sub_tasks:
            sub.reset_all_sub_tasks()

    def kill(self) -> None:
        """End the task, and what it called, at their next step."""
        self.chat.wait_for(lambda: kill_session(self.chat.home.record, self.chat.home.session), "kill_session")

    @classmethod
    def kill_session(cls, session_id: str, record: Record) -> None:
        """End what runs in a session of a record, at its next step."""
        ChatAgent(record=record).wait_for(lambda: kill_session(record, session_id), "kill_session")


async def kill_session(record: Record, session_id: str) -> None:
    """Tell every run of a session that its open turn is to end."""
    for row in await record.store.runs(session_id):
        state = await record.state(row.run)
        if state.open and state.turn is not None:
            content = SignalContent(name="cancel", by="kill")
            key = f"kill-{state.turn.begin}"
            at = utc_text(record.holder.clock())
            await record.store.send(Letter(row.run, key, encode_content(content, None), at))
