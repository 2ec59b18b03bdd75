"""A task lets an agent and sub-tasks answer each other until the task is done. The result is a document or a value.

A tool message is a tool call as data. A document is a message with its sender and recipient. Each task has a run of its
own, a stored sequence of entries. Each message to the task opens a turn in that run, each answer is a workflow step,
and each sub-task is a child run. A session is a group of runs. To continue a task that was interrupted, run it again
with the same message. The task goes on in the middle of the interrupted answer: stored replies are not requested again,
and finished calls are not run again.
"""

import copy
from typing import Any

import msgspec

from gesta.agent import Agent, Answer
from gesta.compat.langroid.chat import ChatAgent
from gesta.compat.langroid.chat_config import TaskConfig
from gesta.compat.langroid.chat_document import ChatDocument, Entity, StatusCode, from_ChatDocument, from_state
from gesta.compat.langroid.exceptions import InfiniteLoopException
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.home import Home, kill_session
from gesta.compat.langroid.orchestration import TOOLS
from gesta.compat.langroid.overriding import restart
from gesta.compat.langroid.responding import id_of
from gesta.compat.langroid.task_rules import Rules, TaskRules
from gesta.compat.langroid.task_steps import Steps, short
from gesta.compat.langroid.tool_message import ToolForm, to_json
from gesta.compat.langroid.working import BY_HAND, end_by_hand
from gesta.decide.move import Finish
from gesta.errors import GestaError
from gesta.events import Outcome
from gesta.kinds import Error, Reason, UserContent
from gesta.policy import Budget, Limits
from gesta.record.record import Record
from gesta.state.opening import Opening
from gesta.workflow.step import Stopped
from gesta.workflow.verbs import Verbs

__all__ = ["StatusCode", "Task", "TaskConfig"]

REASONS: dict[StatusCode, Reason] = {
    StatusCode.KILL: "cancelled",
    StatusCode.ERROR: "failed",
    StatusCode.MAX_TOKENS: "budget",
    StatusCode.STALLED: "limit",
    StatusCode.INF_LOOP: "limit",
    StatusCode.MAX_TURNS: "limit",
}
"""The `reason` that is recorded for a turn without a result, by the status of the task."""


class Task(Steps, eq=False):
    """Runs an agent on a message until the work is done. The agent may hand messages on to sub-tasks."""

    def __post_init__(self) -> None:
        """Set defaults: a new agent if there is none, and the agent's name as the name of the task.

        Raises GestaError if `agent` is not a `ChatAgent`.
        """
        self.config = self.config if self.config is not None else TaskConfig()
        self.agent = self.agent if self.agent is not None else ChatAgent()
        if not isinstance(self.agent, ChatAgent):
            raise GestaError(f"Task: agent is {type(self.agent).__name__}, expected a ChatAgent.")
        self.name = self.name or self.agent.config.name

    def add_sub_task(self, task: Any) -> None:
        """Add one or more sub-tasks. Sub-tasks are asked in the order in which they were added.

        Args:
            task: a task, a pair of a task and its settings as a sub-task, or a list of these.

        Raises:
            GestaError: the value is something else, or another sub-task has the same name.
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
            sub = sub.twin()
            sub.as_sub = config
        self.sub_tasks.append(sub)

    def clone(self, i: int) -> "Task":
        """Return a copy of the task named `name-i`, with copies of its agent and of its sub-tasks."""
        other = self.twin()
        other.agent, other.name = self.chat.clone(i), f"{self.name}-{i}"
        other.sub_tasks = [each.clone(i) for each in self.sub_tasks]
        places = {id(old): new for old, new in zip(self.sub_tasks, other.sub_tasks, strict=True)}
        other.done_if_response = [places.get(id(each), each) for each in self.done_if_response]
        other.done_if_no_response = [places.get(id(each), each) for each in self.done_if_no_response]
        return other

    def __getitem__(self, return_type: Any) -> "Task":
        """Return a copy of the task whose results have this type, as in `task[int]`."""
        other = self.twin()
        other.default_return_type = return_type
        return other

    def twin(self) -> "Task":
        """Return a copy of the task with the same agent, so that the copy can run while this task runs."""
        other = copy.copy(self)
        other.playing, other.verbs, other.sub_tasks = False, None, list(self.sub_tasks)
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
        key: str | None = None,
        max_time: float = 0,
    ) -> Any:
        """Run the task to its end and return its result; see `run_async`."""
        return self.chat.wait_for(
            lambda: self.run_async(
                msg, turns, caller, max_cost, max_tokens, session_id, allow_restart, return_type, key, max_time
            ),
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
        key: str | None = None,
        max_time: float = 0,
    ) -> Any:
        """Run the task to its end, or continue its interrupted turn for the same message.

        Args:
            msg: text, a document, a tool message or any value; `None` for the task's user message.
            turns: largest number of steps; -1 for no limit.
            caller: the task that receives the answer. The caller may end this task, so no person is needed to end it.
            max_cost: limit in US dollars for the task and all that it calls; 0 for no limit. See `gesta.Budget`.
            max_tokens: limit of tokens for this turn, and for each turn of a sub-task; 0 for no limit.
            session_id: session in which the run is stored; by default the agent's.
            allow_restart: false to keep the earlier history in this turn, although the task's `restart` is true.
            return_type: type of the result; by default `default_return_type`, or else a document.
            key: key of the turn. An open turn of this key is continued; if it has ended, its result is returned.
            max_time: seconds after which the task and its sub-tasks end with their last message; 0 for no limit.

        Returns:
            The result; `None` if there is none (`status` says why), or if `msg` is for another recipient.

        Raises:
            GestaError: the task failed, or it waits for a person or an event.
            InfiniteLoopException: the messages of the task repeat without end.
            TurnOpen: a turn for another message is still open.
            ValueError: `max_time` is not a number.
        """
        self._free()
        doc = self._message(msg)
        if doc is not None and doc.metadata.recipient.lower() not in ("", self.name.lower()):
            return None
        self.session = session_id or self.chat.home.session
        self.rules = Rules(
            turns=turns,
            max_tokens=max_tokens,
            max_cost=max_cost,
            max_time=max_time,
            restart=self.reset or (allow_restart and self.restart),
        )
        ended = await self._take(doc, caller, key)
        return self._result_of(ended, return_type or self.default_return_type)

    async def _take(self, doc: ChatDocument | None, caller: "Task | None" = None, key: str | None = None) -> Outcome:
        """Run a turn for `doc` under `key`, or continue its open turn. Return how it ended or why it waits."""
        record, agent = self.chat.home.record, self.as_agent(caller)
        run = await record.turns.run_of(self.session, self.name)
        turn = (await record.state(run)).turn
        text = doc.content or "\n".join(map(to_json, doc.tool_messages)) if doc is not None else ""
        if turn is not None and turn.reason is None:
            if turn.key == BY_HAND:
                await end_by_hand(record, run, record.turns.bind(agent))
            elif key is None and turn.task == text:
                return await record.resume(run, agent)
        content = None
        if doc is not None:
            meta = doc.metadata
            more = doc.tool_messages or doc.content_any is not None or meta.sender != Entity.USER or meta.block
            content = UserContent(value=text, parts=doc.files or None, document=short(doc) if more else None)
        opening = Opening(name=self.name, session=self.session, content=content, key=key)
        return await record.turns.take(agent, opening)

    def _result_of(self, ended: Outcome[Any], return_type: Any) -> Any:
        """Return the result of a turn, and set `status`. Raises GestaError if the task failed or still waits."""
        if ended.reason == "waiting":
            what = ", ".join(each.text for each in ended.waiting)
            raise GestaError(f"Task {self.name!r} waits for {what}: see run {ended.run}, then run it again.")
        if ended.reason != "answered":
            known = {str(each) for each in StatusCode}
            name = ended.error.type if ended.error is not None and ended.error.type in known else "ERROR"
            name = {"cancelled": "KILL", "budget": name if name != "ERROR" else "MAX_COST"}.get(ended.reason, name)
            self.status = StatusCode(name)
            if self.status is StatusCode.INF_LOOP:
                raise InfiniteLoopException(f"Task {self.name!r} goes round in a circle; see run {ended.run}.")
            if self.status is StatusCode.ERROR:
                raise GestaError(f"Task {self.name!r} failed: {ended.error.message if ended.error else ended.reason}")
            return None
        doc = from_state(ended.value, self.all_tools())
        self.status = doc.metadata.status
        if return_type is None or return_type is ChatDocument:
            return doc
        return from_ChatDocument(doc, return_type)

    def as_agent(self, caller: "TaskRules | None", *, first: bool = True) -> Agent:
        """Return an immutable description of the task's agent, whose `program` is a function that runs the steps.

        Args:
            caller: the task that calls this task.
            first: whether this is the caller's first call of this task in its current turn.
        """
        task = self

        async def program(verbs: Verbs, _text: str) -> Answer:
            task._free()
            if caller is not None:
                own = (task.as_sub or task.config).restart_as_subtask
                restart = own or task.reset or (first and caller.forgets)
                task.rules = Rules(restart=restart, max_tokens=caller.rules.max_tokens)
            task.playing = True
            try:
                return await task.play(verbs, caller)
            finally:
                task.playing = False

        settings = msgspec.structs.replace(self.settings, output_format=None)  # it applies to the model, not the task
        limits = settings.policy.limits
        rules = self.rules
        given = max(rules.turns, rules.max_cost, rules.max_tokens, rules.max_time) > 0
        if given and limits == Limits():  # an explicit limit replaces the default ones
            limits = msgspec.structs.replace(limits, requests=None, calls=None)
            settings.policy = msgspec.structs.replace(settings.policy, limits=limits)
        if caller is None and self.rules.max_cost:
            budget = msgspec.structs.replace(settings.policy.budget or Budget(), usd=self.rules.max_cost)
            settings = msgspec.structs.replace(settings, policy=msgspec.structs.replace(settings.policy, budget=budget))
        return self.chat.describe(settings, program)

    async def play(self, verbs: Verbs, caller: "TaskRules | None") -> Answer:
        """Run steps until the task is done, and return the result.

        Gesta calls this for each turn of the task's run. `verbs` can call agents and wait; `caller` is the parent task.
        """
        self.begin(verbs, caller, self.all_tools())
        self.forgets, self.reset = self.rules.restart, False
        self._leave_behind(verbs)
        if self.forgets and not verbs.live.state.steps.named:
            restart(self.chat)
        self.init()
        status = await self._steps(self.turns(self.rules.turns))
        result = self.result(status)
        if result is None:
            reason = REASONS.get(status, "limit")
            raise Stopped(Finish(reason, Error(type=str(status), message=f"Task {self.name!r} ended with {status}.")))
        key = id_of(self.pending_message.metadata.id) if self.pending_message is not None else None
        verbs.sources = ((key[1] if key[0] == verbs.live.log.run else key),) if key is not None else ()
        if self.erase_substeps:
            self._erase(verbs, result)
        text = result.content or "\n".join(map(to_json, result.tool_messages))  # a person must see some text
        return Answer(text, short(result))

    async def _steps(self, turns: int) -> StatusCode:
        """Run steps until the task is done or `turns` steps have run. Return the status."""
        taken = 0
        while taken != self.rules.pause:
            await self.step_async()
            done, status = self.done()
            if done and status is StatusCode.STALLED and 0 < turns < taken + self.max_stalled_steps:
                return StatusCode.FIXED_TURNS  # no step that is left could get an answer
            if done:
                return status
            if self._late():
                return StatusCode.TIMEOUT
            taken += 1
            if 0 < turns <= taken:
                return StatusCode.FIXED_TURNS
            if self.loops():
                return StatusCode.INF_LOOP
        raise self.verbs.wait(())

    def _free(self) -> None:
        if self.playing:
            raise GestaError(f"Task {self.name!r} is at work in run {self.verbs.live.log.run}. Clone it for another.")

    def turns(self, given: int) -> int:
        """Return the largest number of steps: `given`, where -1 means no limit.

        If `given` is not positive and `single_round` is set, return 1, or 2 with `llm_delegate`.
        """
        if self.single_round and given <= 0:
            return 2 if self.llm_delegate else 1
        return given

    def step(self) -> None:
        """Run one more step after `init`. To run all remaining steps, call `run` with the message given to `init`."""
        self.rules = msgspec.structs.replace(self.rules, pause=self.rules.pause + 1)
        self.chat.wait_for(lambda: self._take(self.handed), "run_async")

    def init(self, msg: Any = None) -> ChatDocument | None:
        """Return the message with which the task begins; `None` if there is none.

        A program that runs the steps itself calls `init` instead of `run`, and then `step` for each step.
        """
        if not self.playing:
            self.handed, self.session = self._message(msg), self.session or self.chat.home.session
            self.rules = Rules(restart=self.restart, pause=0)
            self.chat.wait_for(lambda: self._take(self.handed), "run_async")
            return self.pending_message
        live = self.verbs.live
        turn = live.state.turn
        assert turn is not None
        written = self.verbs.handed()
        state = getattr(written.content, "document", None) if written is not None else None
        if isinstance(state, dict):
            known = [each for each in state.get("tool_messages", ()) if each.get("request") in self.known]
            doc = from_state({**state, "tool_messages": known}, self.known)
            doc.metadata.sender, doc.metadata.recipient = Entity.USER, ""
            if self.caller is not None:  # the block applied to responders of the caller
                doc.metadata.block = None
            doc.metadata.parent_id = doc.metadata.id
        elif turn.question:
            doc = ChatDocument.from_str(turn.task)
        else:
            return None
        doc.metadata.id = f"{live.log.run}.{turn.question}"
        self.pending_message, self.pending_sender = doc, Entity.USER
        self.trail.append(doc)
        return doc

    def _message(self, msg: Any) -> ChatDocument | None:
        """Return `msg` (passed to `run`) as a document. If it is `None`, return the task's user message, if any."""
        if msg is None:
            msg = self.settings.user_message
        if msg is None or isinstance(msg, ChatDocument):
            return msg
        if isinstance(msg, str):
            return ChatDocument.from_str(msg)
        if isinstance(msg, ToolForm):
            return self.chat.create_user_response(to_json(msg), tool_messages=[msg])
        return self.chat.create_user_response(msg)

    # the rest

    def all_tools(self) -> dict[str, type[ToolForm]]:
        """Return the classes of all tool messages that documents of the task may contain, by tool name."""
        own = {facts_of(cls).name: cls for cls in TOOLS} | self.chat.llm_tools_map
        for sub in self.sub_tasks:
            own = sub.all_tools() | own
        return own

    def reset_all_sub_tasks(self) -> None:
        """Call `init_state` on the agents of this task and all sub-tasks: models do not see earlier messages."""
        self.chat.init_state()
        self.reset = True
        for sub in self.sub_tasks:
            sub.reset_all_sub_tasks()

    def kill(self) -> None:
        """Cancel the task and the runs that it started. Each run ends at its next step."""
        self.chat.home.end_now(self.kill_async(), "kill_async")

    async def kill_async(self) -> None:
        """Cancel the task and the runs that it started. Each run ends at its next step."""
        await kill_session(self.chat.home.record, self.session or self.chat.home.session, self.name)

    @classmethod
    def kill_session(cls, session_id: str = "", record: Record | None = None) -> None:
        """Cancel all open turns in a session of a record. Each run ends at its next step. See `kill_session_async`."""
        Home(record).wait_for(lambda: cls.kill_session_async(session_id, record), "Task.kill_session_async")

    @classmethod
    async def kill_session_async(cls, session_id: str = "", record: Record | None = None) -> None:
        """Cancel all open turns in a session. Each run ends at its next step.

        Raises GestaError if `record` is `None`.
        """
        if record is None:
            raise GestaError(
                f"Which record has session {session_id!r}? Write kill_session({session_id!r}, record=...)."
            )
        await kill_session(record, session_id)
