"""What a form cannot show is counted: nothing is lost without a word."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from gesta.address import formatter
from gesta.entry import Entry
from gesta.kinds import (
    BeginContent,
    ChatCompletionContent,
    CompactionContent,
    Content,
    Part,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.message import Message
from gesta.model.request import Reply, Unasked, native_by
from gesta.prompt import Prompt
from gesta.views.losses import LOSSES, losses, told

ASKED: list[tuple[Content, int]] = [(BeginContent(name="a", role="turn"), 0), (UserContent(value="hi"), 0)]
NATIVE = {"native": {"by": "chat-completions/1 m", "items": {}}}


class Heard(Unasked):
    def __init__(self) -> None:
        self.messages: list[Message] = []

    def encode(self, message: Message) -> bytes:
        self.messages.append(message)
        return b""


def lost(*contents: Content | tuple[Content, int], form: str = "tool-calls", by: str = "") -> Counter[str]:
    entries = []
    for seq, given in enumerate([*ASKED, *contents], 1):
        content, cause = given if isinstance(given, tuple) else (given, 0)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        entries.append(Entry(run="r", seq=seq, at=at, span=1, causes=(cause,) if cause else (), content=content))
    model = Heard()
    prompt = Prompt(formatter(form), model)
    for entry in entries:
        prompt.add(entry)
    prompt.close()
    left = {shown.sources for shown in prompt.shown}
    return losses(entries, [message for message in model.messages if message.sources in left], by)


def call(**more: Any) -> ToolCallContent:
    return ToolCallContent(**{"tool_name": "look", "tool_args": {}, "tool_call_id": "c1"} | more)


SAID = ChatCompletionContent(output="")


def seen(call: int) -> ToolResultContent:
    return ToolResultContent(call=call, tool_result="seen")


SEEN = seen(4)
ROWS: dict[str, tuple[list[Any], dict[str, int]]] = {
    "nothing": ([SAID, call(), SEEN], {}),
    "a thought of a provider": (
        [SAID, ThoughtContent(value="hm"), call(), SEEN.__class__(call=5, tool_result="x")],
        {"thought": 1},
    ),
    "what a provider kept": ([ChatCompletionContent(output="", meta=NATIVE), call(), SEEN], {"native": 1}),
    "no id where none was given": ([SAID, call(tool_call_id=None), SEEN, call(tool_call_id=""), seen(6)], {}),
    "an odd id": ([SAID, call(tool_call_id="c 1"), SEEN], {"call-id": 1}),
    "an id that comes twice": ([SAID, call(), SEEN, SAID, call(), seen(7)], {"call-id": 1}),
    "a name that none takes": ([SAID, call(tool_name="a b"), SEEN], {"tool-name": 1}),
    "arguments that are not an object": ([SAID, call(meta={"raw_args": "["}), SEEN], {"arguments": 1}),
    "a call without a result": ([SAID, call()], {"unanswered": 1}),
    "a late result": ([SAID, call(), SEEN, ToolResultContent(call=4, tool_result="x", outcome="late")], {"late": 1}),
    "a file that is not there": ([UserContent(value="see", parts=[Part(type="file", blob="b")])], {"file": 1}),
    "what was left out": ([UserContent(value="more"), CompactionContent(from_seq=2, to_seq=2)], {"left-out": 1}),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_it_is_counted(row: tuple[list[Any], dict[str, int]]) -> None:
    contents, expected = row
    found = lost(*contents)
    assert found == expected
    assert len(told(found)) == len(expected)
    assert found.keys() <= LOSSES.keys()


def test_a_provider_has_its_own_back_and_no_other_has() -> None:
    contents: list[Content] = [ChatCompletionContent(output="", meta=NATIVE), call(), SEEN]
    assert not lost(*contents, by="chat-completions/1 m")
    assert lost(*contents, by="chat-completions/1 n") == {"native": 1}
    assert lost(*contents, by="chat-completions/1 m", form="transcript") == {"native": 1, "calls-in-words": 1}
    assert native_by(Unasked()) == "none/1 "
    assert Reply().native is None
