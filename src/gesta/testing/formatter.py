"""The tests that every formatter must pass, as the class `FormatterContract`. The name of each test is a sentence.

A formatter turns the entries (events) of a run into the messages that a model reads. The content of an entry is its
data.
"""
# ruff: noqa: D102 - the name of a test is its sentence

import typing
from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import msgspec

from gesta.entry import Entry
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    Content,
    Opened,
    RequestHeaderContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.message import Message
from gesta.model.request import Delta, Reply, ReplyCall
from gesta.prompt import Formatter
from gesta.testing.model import HEADER, ODD

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OPENED = BeginContent(name="agent", opened=Opened(session="s", name="agent", record="0" * 32))
WORDS = (
    "",
    "Hello.",
    ODD,
    'Thought: look.\nAction: look\nAction Input: {"where": "here"}\nObservation: none',
    "Thought: look.\nAction: look\nAction Input: {broken",
    "Final Answer: it is here.",
    "```python\nlook(where='here')\n```",
    '<code>\nlook(where="here")\n</code> and more',
    '{"request": "look", "where": "here"}',
    '{"request": "look", "where": {"request": [}',
    "[" * 3000,
)
"""Texts of replies, as models may write them."""


def history(*contents: Content | tuple[Content, int]) -> list[Entry]:
    """Return the entries of a run with these contents. Their seqs (numbers in the run) begin at 1.

    Args:
        contents: a content, or a pair of a content and the seq of the entry that caused it.
    """
    entries = []
    for seq, each in enumerate(contents, 1):
        content, cause = each if isinstance(each, tuple) else (each, 0)
        made = Entry(run="run-1", seq=seq, span=1, causes=(cause,) if cause else (), at=AT, content=content)
        entries.append(made)
    return entries


def call(name: str = "look", id: str | None = None, args: Any = None) -> ToolCallContent:
    """Return the content of a tool call. By default it calls the tool `look` and has no id."""
    return ToolCallContent(tool_name=name, tool_args={"where": "here"} if args is None else args, tool_call_id=id)


TURN = history(
    OPENED,
    UserContent(value="Where is it?"),
    ChatCompletionContent(output="I look twice."),
    (call(id="a"), 3),
    (call(id="a"), 3),
    (call("a name of no function", None, {"odd": ODD, "nan": float("nan")}), 3),
    UserContent(value="Are you there?"),
    (ToolResultContent(tool_result={"found": [1, ODD]}, call=5), 5),
    (ToolResultContent(tool_result="nothing", call=4, status="error"), 4),
    ChatCompletionContent(output="It is here."),
    (AssistantContent(value="It is here."), 10),
    UserContent(value="Thanks."),
)
"""A turn with two calls of one id, results in another order, a call without a result, and messages between them."""
LOST = history(
    OPENED,
    ToolResultContent(tool_result="of nobody", tool_call_id="x"),
    call(id="b"),
    ToolResultContent(tool_result="first", tool_call_id="b"),
    ToolResultContent(tool_result="again", tool_call_id="b"),
    ToolResultContent(tool_result="late", call=3),
    AssistantContent(value="Said by nobody's completion."),
    SystemContent(value="From the program.", source=["desk"]),
)
"""Results without a call, repeated results and late results. An imported run may contain them."""
FOREIGN = {str: ODD, int: 7, bool: True, float: float("nan"), dict: {"a": ODD}, list: [ODD], datetime: AT}


def every_kind() -> list[Content]:
    """Return one example of each type of content (the data of an entry), with only its required fields."""
    made = []
    for kind in typing.get_args(Content):
        fields = {
            field.encode_name: _some(field.type)
            for field in msgspec.structs.fields(kind)
            if field.required and field.encode_name != "kind"
        }
        made.append(kind(**fields))
    return made


def _some(type_: Any) -> Any:
    origin = typing.get_origin(type_) or type_
    if origin is typing.Literal:
        return typing.get_args(type_)[0]
    inner = [each for each in typing.get_args(type_) if each in FOREIGN]
    return FOREIGN.get(origin, FOREIGN[inner[0]] if inner else ODD)


class FormatterContract:
    """The tests that every formatter must pass. Subclass it and define `make_formatter`."""

    def make_formatter(self) -> Formatter[Any]:
        """Return a new formatter."""
        raise NotImplementedError

    def test_its_name_has_a_version(self) -> None:
        name, _, version = self.make_formatter().name.partition("/")
        assert name and version, "the name has no version, as in `tool-calls/1`; it stands on record"

    def test_every_call_has_exactly_one_result_right_after_it_and_in_order(self) -> None:
        for entries in (TURN, LOST):
            for until in range(len(entries) + 1):
                answered(self.format(entries[:until]))

    def test_what_people_said_is_in_a_message(self) -> None:
        text = "\n".join(message.text for message in self.format(TURN))
        for said in ("Where is it?", "Are you there?", "Thanks."):
            assert said in text, f"nothing tells the model that a person said {said!r}"

    def test_the_model_reads_its_answer_once(self) -> None:
        said = [message.text for message in self.format(TURN) if message.role == "assistant"]
        found = sum(text.count("It is here.") for text in said)
        assert found == 1, f"the answer of a completion is told {found} times"

    def test_no_entry_raises(self) -> None:
        for content in every_kind():
            self.format(history(OPENED, UserContent(value="Go."), content))
        self.format(history(*every_kind()))

    def test_the_same_entries_give_the_same_messages(self) -> None:
        formatter = self.make_formatter()
        assert self.format(TURN, formatter) == self.format(TURN, formatter) == self.format(TURN), (
            "messages depend on what was formatted before, so that no request can be made again"
        )

    def test_two_runs_that_are_formatted_at_once_do_not_mix(self) -> None:
        formatter = self.make_formatter()
        states = [formatter.start(), formatter.start()]
        found: list[list[Message]] = [[], []]
        for place in range(len(TURN)):
            for which, entries in enumerate((TURN, LOST)):
                found[which] += formatter.format(entries[place : place + 1], states[which])
        alone = [self.one_by_one(TURN), self.one_by_one(LOST)]
        assert found == alone, "two states of one formatter share something"

    def test_every_message_says_of_which_entries_it_was_made(self) -> None:
        for message in self.format(TURN):
            assert message.sources, f"a message of role {message.role} names no source: {message.text!r:.80}"
            assert set(message.sources) <= {entry.seq for entry in TURN}, "a source is not an entry of the segment"

    def test_a_message_is_plain_values(self) -> None:
        for message in self.format(TURN):
            assert isinstance(message.text, str)
            assert all(type(call.args) is dict for call in message.calls), "arguments of a call are not an object"
            assert message.role in ("system", "user", "assistant", "tool"), f"no role is named {message.role!r}"

    def test_a_header_is_dressed_as_a_new_one(self) -> None:
        formatter, header = self.make_formatter(), deepcopy(HEADER)
        dressed = formatter.dress(header)
        assert isinstance(dressed, RequestHeaderContent)
        assert header == HEADER, "the header itself was changed"
        assert formatter.dress(header) == dressed, "two headers that were dressed alike differ"
        if formatter.reader() is not None:
            assert dressed != HEADER, "calls are read from words, and no instructions say how to write them"

    def test_words_are_read_the_same_however_they_are_cut(self) -> None:
        for words in WORDS:
            whole, _ = self.read(words, len(words) or 1)
            for size in (1, 2, 3, 7):
                reply, heard = self.read(words, size)
                assert reply == whole, f"a reply depends on how its words were cut: {words!r:.80}"
                for type_, full in (("text", reply.text), ("thought", reply.thought or "")):
                    told = "".join(delta.text for delta in heard if delta.type == type_)
                    assert full.startswith(told), f"listeners heard {told!r:.80}, and the {type_} is {full!r:.80}"

    def test_calls_that_are_read_from_words_hold_texts(self) -> None:
        for words in WORDS:
            for made in self.read(words, 5)[0].calls:
                assert isinstance(made, ReplyCall)
                assert isinstance(made.name, str) and isinstance(made.args, str), "a call is to keep what was written"

    def format(self, entries: Sequence[Entry], formatter: Formatter[Any] | None = None) -> list[Message]:
        """Return the messages that `formatter`, by default a new one, makes of all these entries at once."""
        made = formatter or self.make_formatter()
        try:
            return made.format(entries, made.start())
        except Exception as error:
            last = entries[-1].content if entries else None
            raise AssertionError(f"expected messages, found {error!r}, of entries up to {last!r:.200}") from error

    def one_by_one(self, entries: Sequence[Entry]) -> list[Message]:
        """Return the messages that a formatter makes when it gets the entries one at a time."""
        formatter = self.make_formatter()
        state, found = formatter.start(), []
        for entry in entries:
            found += formatter.format([entry], state)
        return found

    def read(self, words: str, size: int) -> tuple[Reply, list[Delta]]:
        """Return the reply that a formatter reads from a model's text, and the reply's deltas.

        Deltas are pieces of the reply, to be shown while the text arrives.

        Args:
            words: the text.
            size: number of characters that the formatter gets at once.
        """
        reader = self.make_formatter().reader()
        if reader is None:
            return Reply(text=words), []
        heard: list[Delta] = []
        try:
            for at in range(0, len(words), size):
                heard += reader.feed(words[at : at + size])
            return reader.close(Reply(text=words)), heard
        except Exception as error:
            raise AssertionError(f"expected a reply, found {error!r}, of {words!r:.80}") from error


def answered(messages: Sequence[Message]) -> None:
    """Check that each call has exactly one result: directly after the message with the calls, in their order."""
    due: list[str] = []
    used: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert due, f"a result without a call: {message.call_id!r}"
            assert message.call_id == due.pop(0), "a result stands at another place than its call"
            continue
        assert not due, f"a message where the results of {due} were due"
        due = [call.id for call in message.calls]
        assert not used.intersection(due), "two calls of a conversation have the same id"
        assert len(due) == len(set(due)), "two calls of one message have the same id"
        used.update(due)
    assert not due, f"the calls {due} have no result"
