"""The history of a chat agent: the messages that its model would be shown now, computed from the record.

The record stores a run of the agent: a sequence of entries, to which entries are only ever added. To change the
history, a `compaction` entry is written, which hides messages, and an entry for each message that replaces another.
Nothing is deleted. A tool call and its results are hidden together, because providers refuse a history with only one of
them.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar, cast

from gesta.agent import Agent
from gesta.compat.langroid.entities import LLMMessage, Role
from gesta.compat.langroid.facts import facts_of
from gesta.compat.langroid.tool_message import ToolForm
from gesta.compat.langroid.toolset import BYTES_A_TOKEN
from gesta.compat.langroid.working import RunContext, Working
from gesta.decide.compaction import hiding
from gesta.entry import Cause, Entry
from gesta.kinds import (
    AssistantContent,
    Content,
    Kind,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.log.journal import read
from gesta.message import Message
from gesta.model.request import Unasked
from gesta.prompt import Prompt

T = TypeVar("T")


class Whole(Unasked):
    """A stand-in for a model. It encodes nothing, so a prompt made for it still consists of messages, not bytes."""

    def encode(self, message: Message) -> bytes:
        """Return the message unchanged."""
        return cast("bytes", message)


class Histories(Working):
    """Base class of chat agents: the methods that read and change the history."""

    @property
    def task_messages(self) -> list[LLMMessage]:
        """The messages with which each conversation begins: the system message, then the user message if any."""
        agent = self._context.agent if self._context is not None else self.home.record.turns.bind(self.describe())
        header = agent.formats().dress(agent.header())
        messages = [LLMMessage(role="system", text=str((header.meta or {}).get("instructions", "")))]
        if self.settings.user_message:
            messages.append(LLMMessage(role="user", text=self.settings.user_message))
        return messages

    @property
    def message_history(self) -> list[LLMMessage]:
        """The messages that the model was shown, and the model's answers. The first message is the system message."""
        if self._context is None:
            return self.home.end_now(self.message_history_async(), "message_history_async")
        return self.wait_for(self.message_history_async, "message_history_async")

    @message_history.setter
    def message_history(self, messages: Sequence[Message]) -> None:
        self.wait_for(lambda: self._replace_history(messages), "clear_history_async")

    async def _replace_history(self, messages: Sequence[Message]) -> None:
        """Hide the history, and write `messages` instead. If the first is a system message, it replaces the agent's."""
        if messages and messages[0].role == "system":
            self.config.system_message, messages = messages[0].text, messages[1:]
        await self.clear_history_async(1)
        calls = dict[str, int]()
        async with self.working() as context:
            for message in messages:
                self.put(context, message, calls)

    async def message_history_async(self) -> list[LLMMessage]:
        """Return the same messages as `message_history`. This reads the whole run."""
        return [self.task_messages[0], *map(LLMMessage.of, (await self._history())[0])]

    async def _history(self) -> tuple[list[Message], list[Message]]:
        """Return two lists: messages that the model was shown or wrote, and messages that the next request adds."""
        if self._context is not None:
            await self._context.live.log.durable()
            live = self._context.live.log
            return self._split(self._context.agent, await read(live.journal.store, live.run))
        turns = self.home.record.turns
        run = await turns.run_of(self.home.session, self.name)
        return self._split(turns.bind(self.describe()), await read(self.home.record.store, run))

    def _split(self, agent: Agent, entries: Sequence[Entry]) -> tuple[list[Message], list[Message]]:
        """Return the messages made from entries as two lists: those shown so far, and those that are not shown yet."""
        shown, by_seq = _formatted(agent, entries), {entry.seq: entry for entry in entries}
        sources = {seq for message in shown for seq in message.sources if seq in by_seq}
        answered = any(by_seq[seq].kind == Kind.ChatCompletion for seq in sources)
        asked = max((entry.seq for entry in entries if entry.kind == Kind.Request), default=0)

        def fresh(message: Message) -> bool:
            made = [by_seq[seq] for seq in message.sources if seq in by_seq]
            return bool(made) and min(message.sources) > asked and all(_unseen(each, by_seq) for each in made)

        kept = max((n for n, message in enumerate(shown, 1) if not (answered and fresh(message))), default=0)
        return shown[:kept], shown[kept:]

    def init_message_history(self) -> None:
        """Hide the whole history, and begin it anew with the system message and the user message, if there is one."""
        self.wait_for(self._begin_history, "clear_history_async")

    async def _begin_history(self) -> None:
        """Hide the whole history, and write the user message, if there is one."""
        async with self.working() as context:
            await self.clear_history_async(1)
            self._write_user_message(context)

    def _write_user_message(self, context: RunContext) -> None:
        """Write the user message of the settings, if there is one."""
        if self.settings.user_message:
            self._write(context, SystemContent(value=self.settings.user_message, source=[self.name], history=True))

    def clear_history(self, start: int = -2, end: int = -1) -> None:
        """Hide messages `start` to `end`, inclusive. Negative numbers count from the end.

        Message 0, the system message, is never hidden.
        """
        self.wait_for(lambda: self.clear_history_async(start, end), "clear_history_async")

    async def clear_history_async(self, start: int = -2, end: int = -1) -> None:
        """Hide messages from the history; see `clear_history`."""
        async with self.working() as context:
            history, fresh = await self._history()
            shown = [None, *history]
            first = max(start + len(shown), 0) if start < 0 else start
            last = end + len(shown) if end < 0 else end
            first = max(first, 1)
            while first < len(shown) and first > 1 and (one := shown[first]) is not None and one.role == "tool":
                first -= 1  # a result is hidden with its call
            hidden = [one for one in shown[first : last + 1] if one is not None]
            seqs = [seq for one in [*hidden, *(fresh if last + 1 == len(shown) else ())] for seq in one.sources]
            if seqs:
                self._hide(context, min(seqs), max(seqs))

    def update_history(self, message: str, response: str) -> None:
        """Add a message and its answer to the history."""
        self.wait_for(lambda: self.update_history_async(message, response), "update_history_async")

    async def update_history_async(self, message: str, response: str) -> None:
        """Add a message and its answer to the history."""
        async with self.working() as context:
            said = self._write(context, UserContent(value=message, history=True))
            self._write(context, AssistantContent(value=response, history=True), said.seq)

    def update_last_message(self, message: str, role: str = Role.USER) -> None:
        """Replace the last message that has this role, for example to shorten a long prompt."""
        self.wait_for(lambda: self.update_last_message_async(message, role), "update_last_message_async")

    async def update_last_message_async(self, message: str, role: str = Role.USER) -> None:
        """Replace the last message that has this role; see `update_last_message`."""
        async with self.working() as context:
            hidden = await self._hide_last(context, role)
            if hidden is None:
                return
            made: dict[str, Content] = {
                "user": UserContent(value=message, history=True),
                "assistant": AssistantContent(value=message, history=True),
            }
            self._write(context, made.get(role, SystemContent(value=message, history=True)), hidden.seq)

    def delete_last_message(self, role: str = "user") -> None:
        """Hide the last message that has this role.

        If it is the newest message that the model has seen, also hide all newer messages, such as tool results.
        """
        self.wait_for(lambda: self.delete_last_message_async(role), "delete_last_message_async")

    async def delete_last_message_async(self, role: str = "user") -> None:
        """Hide the last message that has this role; see `delete_last_message`."""
        async with self.working() as context:
            await self._hide_last(context, role)

    async def _hide_last(self, context: RunContext, role: str) -> Entry | None:
        """Hide the last message that has this role; see `delete_last_message`.

        Return the entry that hides it; `None` if there is no such message.
        """
        history, fresh = await self._history()
        found = [one for one in history if one.role == role and one.sources]
        if not found:
            return None
        more = [seq for one in fresh for seq in one.sources] if found[-1] is history[-1] else []
        seqs = [*found[-1].sources, *more]
        return self._hide(context, min(seqs), max(seqs))

    def last_message_with_role(self, role: str) -> LLMMessage | None:
        """Return the last message that has this role; `None` if there is none."""
        return next((one for one in reversed(self.message_history) if one.role == role), None)

    def nth_message_idx_with_role(self, role: str, n: int) -> int:
        """Return the index of the `n`-th message that has this role; -1 if there are fewer.

        `n` counts from 1, the index from 0.
        """
        places = [place for place, one in enumerate(self.message_history) if one.role == role]
        return places[n - 1] if 0 < n <= len(places) else -1

    def set_system_message(self, msg: str) -> None:
        """Replace the system message, from the next request on."""
        self.config.system_message = msg

    def set_user_message(self, msg: str) -> None:
        """Replace the user message, with which each conversation begins."""
        self.config.user_message = msg

    def augment_system_message(self, message: str) -> None:
        """Append a text to the system message, from the next request on."""
        self.config.system_message += f"\n\n{message}"

    def message_history_str(self, i: int | None = None) -> str:
        """Return the history as text: all of it, only message `i`, or, if `i` is negative, the last `-i` messages."""
        history = self.message_history
        shown = history if i is None else history[i:] if i < 0 else history[i : i + 1]
        return "\n".join(f"{one.role}: {one.text}{_calls(one)}" for one in shown)

    def chat_num_tokens(self, messages: Sequence[Message] | None = None) -> int:
        """Return an estimate of the tokens in messages, by default in the history.

        A message counts 4 tokens, and one more for every 4 bytes of its text and calls.
        """
        history = self.message_history if messages is None else messages
        return sum(4 + math.ceil(len((one.text + _calls(one)).encode()) / BYTES_A_TOKEN) for one in history)

    def json_format_rules(self) -> str:
        """Return instructions for the model to write tool calls as JSON in its text; empty if it may use no tool."""
        usable = [cls for name, cls in self.llm_tools_map.items() if name in self.llm_tools_usable]
        if not usable:
            return ""
        told = "\n\n".join(cls.json_instructions(tool=True) for cls in usable)
        return ToolForm.json_group_instructions().replace("{json_instructions}", told)

    def tool_instructions(self) -> str:
        """Return the texts of `instructions()` of all tools that the model may use."""
        usable = [cls for name, cls in self.llm_tools_map.items() if name in self.llm_tools_usable]
        told = [f"{facts_of(cls).name}: {cls.instructions()}" for cls in usable if cls.instructions()]
        return "\n".join(told)

    def sample_multi_round_dialog(self) -> str:
        """Return a sample dialogue, made from the examples of at most two tools that the model may use."""
        usable = [cls for name, cls in self.llm_tools_map.items() if name in self.llm_tools_usable]
        pairs = [(cls.usage_examples(random=True), facts_of(cls).name) for cls in usable[:2]]
        return "\n\n".join(f"Assistant: {example}\nUser: Result from {name}" for example, name in pairs)

    def wait_for(self, work: Callable[[], Awaitable[T]], twin: str) -> T:
        """Run asynchronous work in the current run's event loop, or else in a new one. Return its result.

        `twin` is the name of the asynchronous method that does the same, for the error message.
        """
        return self.home.wait_for(work, twin, self._context.token if self._context is not None else None)

    async def _shown(self, context: RunContext) -> list[Message]:
        """Return the messages that the model would be shown now, without the system message."""
        await context.live.log.durable()
        store, run = self.home.record.store, context.live.log.run
        if context.verbs is not None:
            store = context.live.log.journal.store
        return _formatted(context.agent, await read(store, run))

    def put(self, context: RunContext, message: Message, calls: dict[str, int]) -> None:
        """Write a message of another history as entries of this run.

        Args:
            calls: numbers (seqs) of the entries of the calls written so far, by call id. This dict is updated.
        """
        text = message.text
        match message.role:
            case "user":
                self._write(context, UserContent(value=text, parts=list(message.parts) or None, history=True))
            case "tool":
                seq = calls.get(message.call_id or "", 0)
                self._write(context, ToolResultContent(call=seq, tool_result=text, outcome="ok"), seq)
            case "assistant":
                if text:
                    self._write(context, AssistantContent(value=text, history=True))
                for call in message.calls:
                    made = ToolCallContent(tool_name=call.name, tool_args=dict(call.args), tool_call_id=call.id)
                    calls[call.id] = self._write(context, made).seq
            case _:
                self._write(context, SystemContent(value=text, history=True))

    def _hide(self, context: RunContext, first: int, last: int, summary: str | None = None) -> Entry:
        """Leave the entries `first` to `last` out of later prompts, and return the entry that says so."""
        context.live.absorb()
        return self._write(context, hiding(context.live.state, context.live.prompt, first, last, summary))

    def _write(self, context: RunContext, content: Content, *causes: Cause) -> Entry:
        entry = context.live.write(content, *causes)
        context.live.absorb()
        return entry


def _formatted(agent: Agent, entries: Sequence[Entry]) -> list[Message]:
    """Return the messages that a model would be shown for these entries."""
    prompt = Prompt(agent.formats(), Whole())
    for entry in entries:
        prompt.add(entry)
    prompt.close()
    return cast("list[Message]", prompt.blocks)


def _unseen(entry: Entry, entries: Mapping[int, Entry]) -> bool:
    """Return whether the model has not been shown an entry yet: the next request shows it for the first time.

    Such an entry is a tool call that the model wrote, the result of that call, or the answer of a turn. Entries that a
    program wrote into the history count as shown at once.
    """
    match entry.content:
        case AssistantContent(history=given):
            return not given
        case ToolResultContent(call=call):
            return call is not None and call in entries and _unseen(entries[call], entries)
        case ToolCallContent():
            causes = [entries[seq] for seq in entry.causes if isinstance(seq, int) and seq in entries]
            return any(cause.kind == Kind.ChatCompletion for cause in causes)
    return False


def _calls(message: Message) -> str:
    return "".join(f" {call.name}({call.args})" for call in message.calls)
