"""The rules of a task: its settings, its variables during a run, which answers are valid, and when the task is done.

Answers are documents: messages with a sender and a recipient. A responder is the agent's own methods, its model, the
user, or a sub-task. A done sequence is a pattern of responses that ends the task. The variables are not stored. When an
interrupted task runs again, its recorded steps set them again. Whether a person is present is recorded too, so another
process that continues the task behaves in the same way.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import msgspec
from msgspec import Struct, field

from gesta.agent import Agent
from gesta.compat.langroid.callbacks import TaskCallbacks
from gesta.compat.langroid.chat import ChatAgent
from gesta.compat.langroid.chat_config import ChatAgentConfig, Responder, TaskConfig
from gesta.compat.langroid.chat_document import USER_QUIT_STRINGS, ChatDocMetaData, ChatDocument, Entity, StatusCode
from gesta.compat.langroid.done_sequences import DoneSequence, Response, matched, parse_done_sequences
from gesta.compat.langroid.orchestration import DoneTool, FinalResultTool
from gesta.compat.langroid.overriding import overrides
from gesta.compat.langroid.responders import LITERAL
from gesta.compat.langroid.responding import id_of
from gesta.compat.langroid.signals import Routing, parse_routing
from gesta.compat.langroid.tool_message import ToolForm
from gesta.kinds import KeyValueContent
from gesta.policy import Spelled
from gesta.workflow.verbs import Verbs

OWN = (Entity.AGENT, Entity.LLM, Entity.USER)
NO_RESULT = (StatusCode.MAX_TURNS, StatusCode.INF_LOOP, StatusCode.MAX_TOKENS, StatusCode.KILL)


class Rules(Struct, frozen=True, kw_only=True):
    """The settings that apply to one run of a task. In `turns` and the `max_` fields, 0 or less means no limit."""

    turns: int = -1
    max_tokens: int = 0
    max_cost: float = 0
    max_time: float = 0
    """Seconds after the start of the run; 0 for no limit."""
    restart: bool = True
    pause: int = -1
    """Number of steps after which `run` returns before the task is done, for programs that call `step`; -1 for none."""

    def __post_init__(self) -> None:
        """Raise ValueError if `max_time` is not a number (NaN)."""
        if math.isnan(self.max_time):
            raise ValueError("max_time is not a number; expected seconds, or 0 for any time")


class TaskRules(Struct, eq=False, metaclass=Spelled):
    """Base class of `Task`: the settings of a task, and its variables while it runs."""

    agent: ChatAgent | None = None
    name: str = ""
    llm_delegate: bool = False
    """Whether the model leads the task: it asks for answers and ends the task. Otherwise the user does."""
    single_round: bool = False
    """Whether the task ends after one step, or after two steps with `llm_delegate`."""
    system_message: str = ""
    user_message: str = ""
    restart: bool = True
    """Whether each run begins without the earlier history of the agent and of the sub-tasks' agents."""
    default_human_response: str | None = None
    interactive: bool = True
    """Whether a person is asked after each answer of another responder."""
    only_user_quits_root: bool = True
    """Whether an interactive task without a calling task can be ended only by a person, if one is present."""
    erase_substeps: bool = False
    """Whether the messages between the question and the result are hidden from the model when the task is done."""
    allow_null_result: bool = False
    """Whether a step without an answer gets the text `NO_ANSWER` as its answer, so that the task goes on."""
    max_stalled_steps: int = 5
    """The task ends after this many steps in a row without an answer.

    If only the agent's own methods were asked, it ends after the first step: they would give no answer later either.
    """
    default_return_type: Any = None
    done_if_no_response: Sequence[Responder] = ()
    done_if_response: Sequence[Responder] = ()
    config: TaskConfig = None  # type: ignore[assignment]  # `Task.__post_init__` sets it
    callbacks: TaskCallbacks = field(default_factory=TaskCallbacks)
    """Functions that receive the answers of the sub-tasks."""
    sub_tasks: list[Any] = field(default_factory=list)
    """The sub-tasks in the order in which they are asked. `add_sub_task` adds one."""
    as_sub: TaskConfig | None = None
    """The settings that apply when this task is called as a sub-task; `None` for `config`."""

    # variables of a run; each run sets them anew

    status: StatusCode | None = None
    """How the last run ended."""
    session: str = ""
    """The session of the last run."""
    rules: Rules = field(default_factory=Rules)
    reset: bool = False
    """Whether the next run begins without the earlier history, although `restart` is false."""
    handed: ChatDocument | None = None
    """The message that a program passed to `init`."""
    verbs: Any = None
    playing: bool = False
    caller: Any = None
    """The task that called this task; `None` for a root task."""
    forgets: bool = False
    """Whether this run began without the earlier history."""
    called: set[str] = field(default_factory=set)
    """Names of the sub-tasks called so far in this run."""
    known: dict[str, type[ToolForm]] = field(default_factory=dict)
    pending_message: ChatDocument | None = None
    """The document that waits for an answer."""
    pending_sender: Responder = Entity.USER
    n_stalled_steps: int = 0
    human_tried: bool = False
    is_done: bool = False
    person: bool | None = None
    """Whether a person is present; `None` until it has been checked."""
    trail: list[ChatDocument] = field(default_factory=list)
    """The documents that the task had to answer so far in this run, newest last."""
    responses: list[Response] = field(default_factory=list)
    texts: list[tuple[bool, str]] = field(default_factory=list)
    """The model's answers without tools, as pairs of the same form as in `said`."""
    said: list[tuple[bool, str]] = field(default_factory=list)
    """All answers, each as a pair: whether repeating it can end the task as an infinite loop, and its text."""
    steps: int = 0
    """Number of steps begun so far."""
    deadline: datetime | None = None
    """Time at which the run ends even if it is not done. A sub-task's deadline is never later than its caller's."""
    sequences: list[DoneSequence] = field(default_factory=list)
    described: tuple[Any, Agent] | None = None
    """The last description of the agent, after the values from which it was made. It is reused for equal values."""

    def begin(self, verbs: Verbs, caller: "TaskRules | None", tools: Mapping[str, type[ToolForm]]) -> None:
        """Set the task's variables to their first values, before the first step.

        Args:
            verbs: the methods of the running workflow.
            caller: the task that runs this one as its sub-task; `None` if no task does.
            tools: for each tool name the class of its tool messages (tool calls as data). Recorded tool messages become
                objects of these classes again.
        """
        self.verbs, self.caller, self.known, self.steps = verbs, caller, dict(tools), 0
        self.pending_message, self.pending_sender, self.n_stalled_steps = None, Entity.USER, 0
        self.human_tried = self.is_done = False
        self.described = None
        own = None
        if self.rules.max_time > 0:
            own = verbs.now("begun") + timedelta(seconds=self.rules.max_time)
        bounds = [each for each in (own, caller.deadline if caller is not None else None) if each is not None]
        self.deadline = min(bounds, default=None)
        self.person, self.called, self.trail, self.responses = None, set(), [], []
        self.texts, self.said = [], []
        self.sequences = list(parse_done_sequences(self.config.done_sequences or (), self.chat.llm_tools_map))

    @property
    def chat(self) -> ChatAgent:
        """The agent of the task."""
        assert self.agent is not None
        return self.agent

    @property
    def settings(self) -> ChatAgentConfig:
        """The settings of the agent while it works in this task. The agent's own settings stay unchanged."""
        given: dict[str, Any] = {"name": self.name}
        given |= {"system_message": self.system_message} if self.system_message else {}
        given |= {"user_message": self.user_message} if self.user_message else {}
        return msgspec.structs.replace(self.chat.config, **given)

    def bound(self) -> Agent:
        """Return an up-to-date description of the agent: a new object if its tools or answer type have changed."""
        chat = self.chat
        made_of = (self.settings, set(chat.llm_tools_usable), set(chat.llm_tools_handled), chat.llm_tool_forced)
        if self.described is None or self.described[0] != made_of:
            agent = self.verbs.agent
            if self.described is not None or self.settings.output_format is not None:
                agent = chat.home.record.turns.bind(chat.describe(self.settings, agent.program))
            self.described = made_of, agent
        return self.described[1]

    # which answers are valid

    def valid(self, result: ChatDocument | None, r: Responder) -> bool:
        """Return whether the task's step ends with this answer of responder `r`. A subclass may define other rules."""
        if self._is_done_response(result, r):
            return result is not None
        return fills(result) and not self._routing(result).no_answer

    def _is_done_response(self, result: ChatDocument | None, r: Responder) -> bool:
        full = fills(result)
        if (full and r in self.done_if_response) or (not full and r in self.done_if_no_response):
            return True
        if result is None:
            return False
        return self._routing(result).done or result.metadata.status == StatusCode.DONE

    def _routing(self, doc: ChatDocument | None) -> Routing:
        """Return the signals, such as the word `DONE`, in the text of a model or a person.

        Tool results are not searched.
        """
        if doc is None or not self.config.recognize_string_signals:
            return Routing(content=doc.content if doc is not None else "")
        data = doc.oai_tool_id2result is not None or doc.metadata.source == LITERAL
        data |= bool(doc.metadata.oai_tool_id) or (doc.metadata.sender == Entity.AGENT and bool(doc.metadata.id))
        if data or doc.tool_messages:
            return Routing(content=doc.content)
        read = parse_routing(doc.content, self.config.addressing_prefix)
        if not (read.done or read.passes or read.recipient):
            return read
        key = id_of(doc.metadata.id)
        if key is not None and key[0] != self.verbs.live.log.run:
            return Routing(content=doc.content, no_answer=read.no_answer)
        return read

    # whether a person is present

    def user_can_end(self) -> bool:
        """Return whether only a person can end the task."""
        return self.caller is None and self.interactive and self.only_user_quits_root and self.has_person()

    def has_person(self) -> bool:
        """Return whether there is a person who can be asked, or a program that answers instead of a person."""
        if self.person is None:
            chat = self.chat
            given = self.default_human_response is not None or chat.default_human_response is not None
            asked = chat.get_user_response is not None or chat.callbacks.get_user_response is not None
            there = given or asked or overrides(chat, "user_response", "user_response_async") or chat.has_console()
            self.person = bool(self.verbs.note("person", KeyValueContent(key="person", value=there))[0].value)
        return self.person

    def user_quit(self, result: ChatDocument) -> bool:
        """Return whether a person ended the task. Quit words in quotes, or in the first message, do not count."""
        meta = result.metadata
        said = self.human_tried and meta.sender == Entity.USER
        quits = result.content in USER_QUIT_STRINGS or self._routing(result).done
        return said and meta.source != LITERAL and quits

    # how the task ends

    def _late(self) -> bool:
        """Return whether the time of the run is over. If the task is run again, all that it has done comes before."""
        return self.deadline is not None and not self.verbs.behind and self.verbs.live.clock() >= self.deadline

    def done(self, result: ChatDocument | None = None, r: Responder | None = None) -> tuple[bool, StatusCode]:
        """Return whether the task is done, and its status. A subclass may define other rules.

        Args:
            result: the document to check; by default the task's pending message, which is the newest one.
            r: the responder that gave `result`.
        """
        turn, pending = self.verbs.live.state.turn, result or self.pending_message
        assert turn is not None
        if turn.cancelled is not None:
            return True, StatusCode.KILL
        if self.config.done_if_tool and pending is not None and self.chat.get_tool_messages(pending, all_tools=True):
            return True, StatusCode.DONE
        if self.sequence_done() is not None:
            return True, StatusCode.DONE
        if self.n_stalled_steps and self.n_stalled_steps >= self.max_stalled_steps:
            return True, StatusCode.STALLED
        if 0 < self.rules.max_tokens < turn.tokens_in + turn.tokens_out:
            return True, StatusCode.MAX_TOKENS
        if pending is not None and any(isinstance(each, FinalResultTool) for each in pending.tool_messages):
            return True, StatusCode.DONE  # this also ends a root task that otherwise only a person ends
        quit_ = pending is not None and self.user_quit(pending)
        if self.user_can_end():
            return quit_, StatusCode.USER_QUIT if quit_ else StatusCode.OK
        if self.is_done or (result is not None and self._is_done_response(result, r)):
            return True, StatusCode.DONE
        if pending is None or quit_:
            return True, StatusCode.USER_QUIT if quit_ else StatusCode.STALLED
        mine = self.caller is not None and pending.metadata.recipient.lower() == self.caller.name.lower()
        return mine, StatusCode.OK

    def result(self, status: StatusCode | None = None) -> ChatDocument | None:
        """Return the newest answer as the task's result; `None` if there is none. A subclass may define other results.

        Args:
            status: why the task ended. For some statuses, such as `MAX_TURNS`, `None` is returned.
        """
        last = self.pending_message
        if status in NO_RESULT or last is None:
            return None
        if status is StatusCode.STALLED and last.metadata.sender == self.pending_sender == Entity.USER:
            return None  # the person's message got no answer
        if status is StatusCode.STALLED and last.tool_messages and self.caller is None:
            return None  # a tool that nobody handles is not an answer
        routing = self._routing(last)
        final = [each for each in last.tool_messages if isinstance(each, FinalResultTool)]
        said = [each for each in last.tool_messages if isinstance(each, DoneTool)]  # the model sent it in the last step
        meta = ChatDocMetaData(
            sender=Entity.USER,
            sender_name=self.name,
            recipient=last.metadata.recipient,
            block=last.metadata.block,
            status=StatusCode.DONE if said or (final and self.caller is not None) else status,
            parent_id=last.metadata.id,
            tools_from_agent=last.metadata.tools_from_agent,
            calls=[] if said else last.metadata.calls,
            tainted=last.metadata.tainted,
        )
        content = said[0].content if said else routing.content if routing.done else last.content
        return ChatDocument(
            content="" if final else content,
            content_any=last.content_any,
            tool_messages=final or [each for each in last.tool_messages if each not in said],
            oai_tool_id2result=last.oai_tool_id2result,
            files=last.files,
            metadata=meta,
        )

    def sequence_done(self) -> DoneSequence | None:
        """Return the done sequence that ends the task now, because the newest responses match it; else `None`."""
        return matched(self.sequences, self.responses)

    def loops(self) -> bool:
        """Return whether the answers repeat in a cycle, or every other message says that there is no answer.

        Repeated tool calls alone are not a loop, because a tool may poll. Such calls are a loop if a person repeats the
        same words between the calls, or if the agent repeatedly reports that it is done.
        """
        cycle, times = self.config.inf_loop_cycle_len, self.config.inf_loop_wait_factor
        for said, length in product((self.texts, self.said), range(1, cycle + 1)):
            last = said[-length:]
            if len(said) >= length * times and said[-length * times :] == last * times and any(how for how, _ in last):
                return True
        others = self.trail[-1 : -2 * times - 2 : -2] if cycle else []
        return len(others) > times and all(self._routing(doc).no_answer for doc in others)


def fills(doc: ChatDocument | None) -> bool:
    """Return whether a document is not empty: it has a text, a value, tool calls, or results of tool calls."""
    if doc is None:
        return False
    results = doc.metadata.oai_tool_id or doc.oai_tool_id2result or doc.oai_tool_calls or doc.metadata.calls
    return bool(doc.content.strip() or doc.content_any is not None or doc.tool_messages or results or doc.files)
