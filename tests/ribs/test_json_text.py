"""Calls as JSON in the text: the same for any cut; only a `request` is a call; what is broken is told; valid histories."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.scenes import Tape, World, agent, play, tools
from tests.laws.test_histories import bodies, scripts
from tests.laws.test_resume import whole
from tests.ribs.test_text_formatters import LONG, Calls, fed, look, parsed, seconds, segments, sent, words
from tests.validators.chat_completions import violations

import gesta
from gesta.formatters.json_text import JsonReader, JsonText
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Content,
    RequestHeaderContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.model.request import Delta, Reply
from gesta.record.record import Record


def read(text: str) -> tuple[str, Calls]:
    """Text and calls of a reply; whole and one character at a time give the same."""
    made, _ = fed(JsonReader(), [text])
    assert fed(JsonReader(), text)[0] == made
    assert made.thought is None
    return made.text, [(call.name, parsed(call.args)) for call in made.calls]


# what a reply means

X = {"x": 1}
CALL = '{"request": "look", "x": 1}'
ROWS: dict[str, tuple[str, str, Calls]] = {
    "a call": (CALL, "", [("look", X)]),
    "words around it": (f"I look.\n{CALL}\nWell?", "I look.\n\nWell?", [("look", X)]),
    "several calls": (f'{CALL}\nand {{"request": "put", "x": 2}}', "and", [("look", X), ("put", {"x": 2})]),
    "the same call twice": (f"{CALL} {CALL}", "", [("look", X), ("look", X)]),
    "no arguments": ('{"request": "look"}', "", [("look", {})]),
    "arguments before the name": ('{"x": 1, "request": "look"}', "", [("look", X)]),
    "objects in the arguments": (
        '{"request": "look", "x": {"request": "pay", "y": [{}]}}',
        "",
        [("look", {"x": {"request": "pay", "y": [{}]}})],
    ),
    "braces and quotes in a string": ('{"request": "look", "x": "}{\\"\\n"}', "", [("look", {"x": '}{"\n'})]),
    "a line end in a string": ('{"request": "look", "x": "a\nb"}', "", [("look", {"x": "a\nb"})]),
    "letters of any kind": ('{"request": "look", "x": "犬é"}', "", [("look", {"x": "犬é"})]),
    "a fence around it": (f"```json\n{CALL}\n```", "", [("look", X)]),
    "a fence after words": (f"I look.\n```\n{CALL}\n```\n", "I look.", [("look", X)]),
    "a fence around both": (f"```json\n{CALL}\n{CALL}\n```", "", [("look", X), ("look", X)]),
    "a fence around something else": (f"```py\nx\n```\n{CALL}", "```py\nx\n```", [("look", X)]),
    "an object that is not a call beside one": (f'{{"x": 1}} {CALL}', '{"x": 1}', [("look", X)]),
    "no object": (" It is 42.\n", "It is 42.\n", []),
    "nothing": ("", "", []),
    "an object without a request": ('Like {"x": 1}, see?', 'Like {"x": 1}, see?', []),
    "an object that names a tool otherwise": ('{"name": "look", "x": 1}', '{"name": "look", "x": 1}', []),
    "a request that is not text": ('{"request": {"x": 1}}', '{"request": {"x": 1}}', []),
    "a request further in": (f'{{"example": {CALL}}}', f'{{"example": {CALL}}}', []),
    "the word alone": ('On "request": "look" I look.', 'On "request": "look" I look.', []),
    "code": ("```js\nf({ a: request });\n```", "```js\nf({ a: request });\n```", []),
    "a request without a name": ('{"request": "", "x": 1}', "", [("unknown", X)]),
    "a name that no tool has": ('{"request": "nope"}', "", [("nope", {})]),
    "a broken call": ('Now {"request": "look", "x": 1,,}!', "Now !", [("look", '{"request": "look", "x": 1,,}')]),
    "a call in single quotes": ("{'request': 'look'}", "", [("look", {})]),
    "a call without its end": ('I {"request": "look", "x": "1', "I", [("look", '{"request": "look", "x": "1')]),
    "a good call after a broken one": (
        f'{{"request": "put" "x": 1}} {CALL}',
        "",
        [("put", '{"request": "put" "x": 1}'), ("look", X)],
    ),
    "a broken object without a request": ('{"x": 1,,}', '{"x": 1,,}', []),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_reply_with_json_means(row: tuple[str, str, Calls]) -> None:
    text, *expected = row
    assert read(text) == tuple(expected)


def test_what_a_provider_gave_beside_the_words_stays() -> None:
    own = gesta.reply(text="", calls=[gesta.call("put", x=1)])
    assert isinstance(own, Reply)
    given_ = Reply(thought="hidden", calls=own.calls, usage={"total_tokens": 7}, model="m")
    made, _ = fed(JsonReader(), [f"Both. {CALL}"], given_)
    assert (made.thought, made.usage, made.model) == ("hidden", {"total_tokens": 7}, "m")
    assert ([call.name for call in made.calls], made.text) == (["put", "look"], "Both.")


# any cut

PIECES = [
    *(CALL, '{"request": "', "look", '", ', '"x": ', "{", "}", "[", "]", '"', "\\", "'", ":", "{{name}}", '{"x": 1}'),
    *("```", "```json\n", "`", "\n", " ", "I look. ", '{"request": 1}', "{'request': 'put'}", "\ud800", "\u2028"),
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=20).map("".join)


@given(text=texts, data=st.data())
def test_however_it_is_cut_it_is_read_the_same(text: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    cuts = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    expected, at_once = fed(JsonReader(), [text])
    for pieces in (cuts, list(text)):
        made, deltas = fed(JsonReader(), pieces)
        assert made == expected
        told = words(deltas, "text")
        assert told == words(at_once, "text")
        assert made.text.startswith(told)
        assert "{" not in told, "of what may be a call nothing is told"
    assert made.calls or made.text == text.lstrip()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4).filter(lambda key: key != "request"), values, max_size=3))
def test_any_arguments_come_back_as_they_were_written(args: dict[str, Any]) -> None:
    for text in (json.dumps({"request": "look", **args}), json.dumps({**args, "request": "look"}, indent=2)):
        assert read(f"So:\n{text}") == ("So:", [("look", args)])
    form = JsonText()
    native: list[Content] = [ChatCompletionContent(output="So."), ToolCallContent(tool_name="look", tool_args=args)]
    (_, said), _ = sent(form, *native)
    assert read(said) == ("So.", [("look", args)]), "native calls are written so that they are read again"


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_was_told_is_the_beginning_of_the_text(row: tuple[str, str, Calls]) -> None:
    for pieces in ([row[0]], list(row[0])):
        made, deltas = fed(JsonReader(), pieces)
        assert made.text.startswith(words(deltas, "text"))


def test_words_are_told_until_an_object_may_begin() -> None:
    reader = JsonReader()
    assert reader.feed("I lo") == [Delta("text", "I lo")]
    assert reader.feed("ok. {") == [Delta("text", "ok.")]
    assert reader.feed('"request": "look"} and so on') == []
    assert reader.close(Reply()).text == "I look.  and so on"
    reader = JsonReader()
    assert reader.feed("I look.\n```json\n") == [Delta("text", "I look.")], "nor is the fence around it told"
    assert reader.feed(f"{CALL}\n```") == []


HARD = [
    *(json.dumps({"request": "look", "x": "y" * LONG}), json.dumps({"request": "look", "x": [X] * (LONG // 10)})),
    *("word " * (LONG // 5), "{" * LONG, '{"request": ' * (LONG // 12), '{"request": "look"' * (LONG // 18)),
    *(CALL * (LONG // len(CALL)), "{'request" + " " * LONG, "{'request : " * (LONG // 12), '{"' + '\\"' * (LONG // 2)),
    *(CALL + "`" * LONG, CALL + "``` " * (LONG // 4), CALL + "```" + "x" * LONG, CALL + "```" + " " * LONG),
    *("I'm {so} sure. " * (LONG // 15), '{"request": "look", "x": 1,,} ' * (LONG // 30), '{"a":' * (LONG // 5)),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", HARD, ids=lambda text: repr(text[:24]))
def test_reading_100_kb_is_fast(text: str) -> None:
    assert seconds(JsonReader, [text], 0.2) < 0.2
    assert seconds(JsonReader, list(text[:20_000]), 0.2) < 0.2


# histories


def test_a_model_reads_its_own_words_and_the_results_after_them() -> None:
    output = f"I look.\n```json\n{CALL}\n```"
    entries: list[Content] = [ChatCompletionContent(output=output), look(1), ToolResultContent(call=2, tool_result="é")]
    assert sent(JsonText(), *entries) == [("assistant", output), ("user", "Observation: é")]
    broken = ToolCallContent(tool_name="look", tool_args={}, status="error", meta={"raw_args": "{"})
    told = ToolResultContent(call=2, tool_result="no", status="error", outcome="error")
    said = '{"request": "look",,}'
    assert sent(JsonText(), ChatCompletionContent(output=said), broken, told) == [
        ("assistant", said),
        ("user", "Observation: no"),
    ]


def test_the_instructions_name_the_tools_and_the_form() -> None:
    listed: list[dict[str, Any]] = [{"name": "look", "description": "Looks.", "args_schema": {"type": "object"}}]
    dressed = JsonText().dress(RequestHeaderContent(tools=listed, meta={"instructions": "Be brief."}))
    assert dressed.meta is not None and dressed.meta["tools_in"] == "text" and dressed.tools == listed
    text = dressed.meta["instructions"]
    assert text.startswith("Be brief.\n\n") and 'look: Looks.\nArguments: {"type": "object"}' in text
    (example,) = read(text)[1]
    assert example[0] == "look_up", "the example in the instructions is a call as it is read"


replies = st.lists(texts, min_size=1, max_size=4).map(lambda steps: [*steps, "done"])


@given(script=scripts | replies)
def test_every_history_is_valid_whatever_a_model_writes(script: list[Any]) -> None:
    async def main() -> None:
        tape, form = Tape(), JsonText()
        acting = agent(World(), script, formatter=form)
        (outcome,) = await play(tape, acting)
        assert outcome.reason in {"answered", "failed"}
        entries = await Record(tape, lambda made: made).read(outcome.run)
        for request in bodies(acting, entries):
            assert violations(request.body()) == []
        assert not any(message.calls or message.role == "tool" for message in segments(form, entries))

    anyio.run(main)


@given(script=scripts)
def test_at_every_prefix_of_a_native_run_no_call_is_left_without_an_observation(script: list[Any]) -> None:
    async def main() -> None:
        _, _, entries = await whole(script)
        for place in range(2, len(entries) + 1):
            messages = segments(JsonText(), entries[:place])
            for message, after in zip(messages, [*messages[1:], None], strict=True):
                seqs = {seq for seq in message.sources if isinstance(entries[seq - 1].content, ToolCallContent)}
                if message.role == "assistant" and seqs:
                    assert after is not None and after.role == "user" and after.text.startswith("Observation")
                    assert len(after.sources) == len(seqs)

    anyio.run(main)


# whole runs

BROKEN = [
    '{"request": "look", "x": 1,,}',
    "{'request': 'look', 'x': 1,,}",
    '{"request": "look", "x": "1',
    '{"request": "look", "x": ' + "9" * 5000 + "}",
    '{"request": "look", "x": ' + "[" * 5000 + "]" * 5000 + "}",
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda text: text[:29])
async def test_broken_json_with_a_request_is_told_to_the_model_and_not_carried_out(broken: str) -> None:
    async with gesta.open() as record:
        acting = agent(World(), [f"I look. {broken}", "Done."], formatter=JsonText())
        outcome = await record.run(acting, "go", session="s")
        entries = await record.read(outcome.run)
    assert outcome.answer == "Done."
    (call,) = (entry.content for entry in entries if isinstance(entry.content, ToolCallContent))
    (result,) = (entry.content for entry in entries if isinstance(entry.content, ToolResultContent))
    assert (call.tool_name, call.status, result.outcome) == ("look", "error", "error")
    last = json.loads(bodies(acting, entries)[-2].body())["messages"][-1]
    assert last["role"] == "user" and last["content"].startswith("Observation: ")
    assert str(result.tool_result) in last["content"] and len(last["content"]) < 1000


async def test_a_run_acts_and_answers_and_streams() -> None:
    script = [
        f'Both.\n{CALL}\n```json\n{{"request": "look", "x": 2}}\n```',
        'It is like {"x": 1}: saw 1\nand 2',
    ]
    async with gesta.open() as record:
        acting = agent(World(), script, formatter=JsonText())
        events = [event async for event in record.stream(acting, "go", session="s")]
        contents = [entry.content for entry in await record.read(events[-1].run)]
    results = [content.tool_result for content in contents if isinstance(content, ToolResultContent)]
    assert results == ["saw 1", "saw 2"]
    (said,) = (content.value for content in contents if isinstance(content, AssistantContent))
    assert said == script[1]
    assert [content.output for content in contents if isinstance(content, ChatCompletionContent)] == script
    taken_back = max((place for place, event in enumerate(events) if event.type == "retract"), default=-1)
    told = "".join(event.content for event in events[taken_back + 1 :] if event.type == "answer")
    assert told == script[1], "words before a call are taken back, and then a thought"
    assert "Both." in [event.content for event in events if event.type == "thought"]
    header = next(content for content in contents if isinstance(content, RequestHeaderContent))
    assert header.meta is not None and all(tool.name in header.meta["instructions"] for tool in tools(World()))
