"""ReAct and CodeAct in words: one grammar, the same for any cut; what fits none is told to the model; valid histories."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.scenes import Tape, World, agent, play, tools
from tests.laws.test_histories import bodies, scripts
from tests.laws.test_resume import whole
from tests.validators.chat_completions import violations

import gesta
from gesta.entry import Entry
from gesta.formatters.codeact_text import CodeActReader, CodeActText
from gesta.formatters.react_text import ReActReader, ReActText, an_object
from gesta.formatters.text_form import LineReader, TextForm
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Content,
    RequestContent,
    RequestHeaderContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.message import Message
from gesta.model.request import Delta, Reply
from gesta.models.hosted import dialect
from gesta.models.providers import PROVIDERS
from gesta.prompt import Reader
from gesta.record.record import Record

pytestmark = pytest.mark.sample(2, over="parent")

FORMS: list[TextForm] = [ReActText(), CodeActText()]
both = pytest.mark.parametrize("form", FORMS, ids=lambda one: one.name)
Calls = list[tuple[str, Any]]


def fed(reader: Reader, cuts: Iterable[str], reply: Reply | None = None) -> tuple[Reply, list[Delta]]:
    deltas = [delta for cut in cuts for delta in reader.feed(cut)]
    return reader.close(Reply() if reply is None else reply), deltas


def words(deltas: Iterable[Delta], type: str) -> str:
    return "".join(delta.text for delta in deltas if delta.type == type)


def read(kind: type[LineReader], text: str, **reply: Any) -> tuple[str | None, str, Calls]:
    """Thought, answer and calls of a reply; whole and one character at a time give the same."""
    made, deltas = fed(kind(), [text], Reply(**reply))
    assert fed(kind(), text, Reply(**reply))[0] == made
    told, thought = words(deltas, "text"), words(deltas, "thought")
    assert (made.text.startswith(told) and (made.thought or "").endswith(thought)) or reply
    return made.thought, made.text, [(call.name, parsed(call.args)) for call in made.calls]


def parsed(args: str) -> Any:
    """Arguments that are JSON, else their text."""
    try:
        return json.loads(args)
    except ValueError:
        return args


# ReAct: what a reply means

X = {"x": 1}
ROWS: dict[str, tuple[str, str | None, str, Calls]] = {
    "a call": ('Thought: t\nAction: look\nArgs: {"x": 1}', "t", "", [("look", X)]),
    "an answer": ("Thought: t\nFinal Answer: 42", "t", "42", []),
    "a fence around it": ('```\nThought: t\nAction: look\nArgs: {"x": 1}\n```', "t", "", [("look", X)]),
    "a fence around an answer": ("```text\nFinal Answer: a\n```\n", None, "a", []),
    "words before that fence": ("Sure.\n\n```\nThought: t\nFinal Answer: a\n```", "Sure.\nt", "a", []),
    "a fence after the thought": ("Thought: t\n```\nAction: look\n```", "t", "", [("look", {})]),
    "code in a fenced answer": ("```\nFinal Answer: a\n```py\nx\n```\n```", None, "a\n```py\nx\n```", []),
    "code in an answer": ("Final Answer: a\n```py\nx\n```", None, "a\n```py\nx\n```", []),
    "code in a thought": ("Thought: t\n```py\nx\n```\nFinal Answer: a", "t\n```py\nx\n```", "a", []),
    "code that is the answer": ("```py\nx\n```", None, "```py\nx\n```", []),
    "a long thought": ("Thought: one\n  two\n\nthree\nFinal Answer: a", "one\n  two\n\nthree", "a", []),
    "a name in quotes": ('Action: "look"\nArgs: {}', None, "", [("look", {})]),
    "a name in bold": ('**Action:** `look`\n**Args:** {"x": 1}', None, "", [("look", X)]),
    "bold of the other kind": ('**Thought**: t\n**Action: look**\n**Args**: {"x": 1}', "t", "", [("look", X)]),
    "headings and numbers": ('### Thought 1: t\nACTION 1 : look\nAction Input 1: {"x": 1}', "t", "", [("look", X)]),
    "a name on its own line": ('Action:\nlook\n\nArgs:\n{"x": 1}', None, "", [("look", X)]),
    "a name with brackets": ("Action: look()", None, "", [("look", {})]),
    "arguments beside the name": ('Action: look {"x": 1}', None, "", [("look", X)]),
    "arguments without a marker": ('Action: look\n```json\n{"x": 1}\n```', None, "", [("look", X)]),
    "no arguments": ("Thought: t\nAction: look", "t", "", [("look", {})]),
    "empty arguments": ("Action: look\nArgs:\n```json\n```", None, "", [("look", "json")]),
    "blank arguments": ("Action: look\nArgs:  \n", None, "", [("look", {})]),
    "no thought": ('Action: look\nArgs: {"x": 1}', None, "", [("look", X)]),
    "no marker": ("It is 42.\n\n Really. ", None, "It is 42.\n\n Really.", []),
    "no marker, a brace": ('{"x": 1}', None, '{"x": 1}', []),
    "words before a marker": ("Well.\nThought: t\nFinal Answer: a", "Well.\nt", "a", []),
    "nothing": ("", None, "", []),
    "blanks": (" \n\n", None, "", []),
    "an empty answer": ("Thought: t\nFinal Answer:", "t", "", []),
    "a thought alone": ("Thought: t\nand so on", "t\nand so on", "", [("unknown", "t\nand so on")]),
    "a brace in a string": ('Action: look\nArgs: {"x": "}{\\"}"}', None, "", [("look", {"x": '}{"}'})]),
    "an apostrophe in a string": ('Action: look\nArgs: {"x": "it\'s"}', None, "", [("look", {"x": "it's"})]),
    "a marker in a string": ('Action: look\nArgs: {"x": "a\nAction: b"}', None, "", [("look", {"x": "a\nAction: b"})]),
    "lines of JSON": ('Action: look\nArgs: {\n  "x": [\n    1\n  ]\n}', None, "", [("look", {"x": [1]})]),
    "a fence around arguments": ('Action: look\nArgs: ```json\n{"x": 1}\n```', None, "", [("look", X)]),
    "words after arguments": ('Action: look\nArgs: {"x": 1}\nIt\'s done.', None, "", [("look", X)]),
    "single quotes": (
        "Action: look\nArgs: {'x': 'it\\'s \"\n', 'y': None}",
        None,
        "",
        [("look", {"x": "it's \"\n", "y": None})],
    ),
    "names of Python": (
        'Action: look\nArgs: {"x": True, "y": "True",}',
        None,
        "",
        [("look", {"x": True, "y": "True"})],
    ),
    "a list of one object": ('Action: look\nArgs: [{"x": 1}]', None, "", [("look", X)]),
    "a list of two": ('Action: look\nArgs: [{"x": 1}, {"x": 2}]', None, "", [("look", [X, {"x": 2}])]),
    "two objects": ('Action: look\nArgs: {"x": 1}, {"x": 2}', None, "", [("look", '{"x": 1}, {"x": 2}')]),
    "plain words as arguments": ("Action: look\nArgs: Rome", None, "", [("look", "Rome")]),
    "words before arguments": ('Action: look\nArgs: of {"x": 1}', None, "", [("look", 'of {"x": 1}')]),
    "broken JSON": ('Action: look\nArgs: {"x": 1,,}', None, "", [("look", '{"x": 1,,}')]),
    "JSON without its end": ('Action: look\nArgs: {"x": 1\nFinal Answer: a', None, "", [("look", '{"x": 1')]),
    "a string without its end": (
        'Action: look\nArgs: {"x": "1\nFinal Answer: a',
        None,
        "",
        [("look", '{"x": "1\nFinal Answer: a')],
    ),
    "a marker inside a line": ("Thought: the Action: of it\nFinal Answer: a", "the Action: of it", "a", []),
    "a marker after a marker": ("Thought: Action: look", "Action: look", "", [("unknown", "Action: look")]),
    "arguments without an action": ("Thought: t\nArgs: {}\nFinal Answer: a", "t\nArgs: {}", "a", []),
    "an observation before any action": ("Observation: o\nFinal Answer: a", "Observation: o", "a", []),
    "two actions": (
        'Action: look\nArgs: {"x": 1}\nThought: t\nAction: put\nArgs: {}',
        "t",
        "",
        [("look", X), ("put", {})],
    ),
    "two actions without arguments": ("Action: look\nAction: put", None, "", [("look", {}), ("put", {})]),
    "an observation made up": (
        'Action: look\nArgs: {"x": 1}\nObservation: o\nThought: t\nAction: put',
        None,
        "",
        [("look", X)],
    ),
    "an answer after an action": ("Thought: t\nAction: look\nFinal Answer: a\nb", "t", "", [("look", {})]),
    "no action and an answer": ("Thought: t\nAction: None\nArgs: None\nFinal Answer: a", "t", "a", []),
    "no action and no answer": ("Action: None", None, "", [("None", {})]),
    "an action without a name": ('Action:\nArgs: {"x": 1}', None, "", [("unknown", X)]),
    "a name of 100 characters": (f"Action: {'look ' * 20}", None, "", [("unknown", ("look " * 20).strip())]),
    "a long name with arguments": (f"Action: {'y' * 65}\nArgs: {{}}", None, "", [("unknown", f"{'y' * 65}\n{{}}")]),
    "a name that no tool has": ("Action: get weather", None, "", [("get weather", {})]),
    "a long answer": (
        "Final Answer: a\n\n  b  \nAction: c\nThought: d\n",
        None,
        "a\n\n  b  \nAction: c\nThought: d",
        [],
    ),
    "an answer with a brace": ('Final Answer: {"x": 1} and more', None, '{"x": 1} and more', []),
    "an answer in bold": ("Final Answer: **a** b", None, "**a** b", []),
    "line ends of another system": ('Thought: t\r\nAction: look\r\nArgs: {"x": 1}\r\n', "t", "", [("look", X)]),
    "letters that only look like a marker": ("Arg\u017f: x\n\u212a", None, "Arg\u017f: x\n\u212a", []),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_reply_in_react_means(row: tuple[str, str | None, str, Calls]) -> None:
    text, *expected = row
    assert read(ReActReader, text) == tuple(expected)


# CodeAct: what a reply means


def code(text: str) -> Calls:
    return [("code_execution", {"code": text})]


CODE_ROWS: dict[str, tuple[str, str | None, str, Calls]] = {
    "code": ("Thought: t\n```python\nx = 1\nprint(x)\n```", "t", "", code("x = 1\nprint(x)")),
    "other marks of Python": ("Thought: t\n```Py\nx\n```", "t", "", code("x")),
    "no mark after a thought": ("Thought: t\n```\nx\n```", "t", "", code("x")),
    "a label": ("Thought: t\nCode:\n```\nx\n```", "t", "", code("x")),
    "tags": ("Thought: t\n<code>\nx\n</code>\nmore", "t", "", code("x")),
    "tags on one line": ("Thought: t\n<code> x </code>", "t", "", code("x")),
    "a tag inside the code": ("<code>\nx = '</code>'\n</code>", None, "", code("x = '</code>'")),
    "a fence inside the code": ('````python\nx = """\n```\n"""\n````', None, "", code('x = """\n```\n"""')),
    "markers inside the code": (
        "```python\nThought: x\nFinal Answer: y\n```",
        None,
        "",
        code("Thought: x\nFinal Answer: y"),
    ),
    "no thought": ("I look.\n```python\nx\n```", "I look.", "", code("x")),
    "no end": ("Thought: t\n```python\nx", "t", "", code("x")),
    "an observation made up": ("Thought: t\n```python\nx\n```\nObservation: o\nFinal Answer: a", "t", "", code("x")),
    "two blocks": ("Thought: t\n```python\nx\n```\nor\n```python\ny\n```", "t", "", code("x")),
    "nothing in it": ("```python\n```", None, "", code("")),
    "an answer": ("Thought: t\nFinal Answer: a\n\nb", "t", "a\n\nb", []),
    "code in the answer": ("Final Answer: a\n```python\nx\n```", None, "a\n```python\nx\n```", []),
    "a fence around it": ("```\nThought: t\nFinal Answer: a\n```", "t", "a", []),
    "a fence around code": ("```\nThought: t\n```python\nx\n```\n```", "t", "", code("x")),
    "no marker": ("a\nb", None, "a\nb", []),
    "no marker and a fence": ("a\n```\nb\n```", None, "a\n```\nb\n```", []),
    "another language": ("```json\n{}\n```\n", None, "```json\n{}\n```", []),
    "another language in a thought": (
        "Thought: t\n```json\n{}\n```\nso\n```\nx\n```",
        "t\n```json\n{}\n```\nso",
        "",
        code("x"),
    ),
    "half a tag": ("<cod", None, "<cod", []),
    "a tag too far in": ("Final", None, "Final", []),
    "a thought alone": ("Thought: t", "t", "", [("unknown", "t")]),
    "nothing": ("", None, "", []),
}


@pytest.mark.parametrize("row", CODE_ROWS.values(), ids=CODE_ROWS)
def test_a_reply_in_codeact_means(row: tuple[str, str | None, str, Calls]) -> None:
    text, *expected = row
    assert read(CodeActReader, text) == tuple(expected)


CUT_CODE = "```python\nx = 1"


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("openai:m", {"choices": [{"message": {"content": CUT_CODE}, "finish_reason": "length"}]}),
        ("openai:m", {"choices": [{"message": {"content": CUT_CODE}, "finish_reason": "content_filter"}]}),
        ("anthropic:m", {"content": CUT_CODE, "stop_reason": "max_tokens"}),
        ("anthropic:m", {"content": CUT_CODE, "stop_reason": "model_context_window_exceeded"}),
        ("anthropic:m", {"content": CUT_CODE, "stop_reason": "refusal"}),
        *(
            ("openai-responses:m", {"output_text": CUT_CODE, "output": [], "status": "incomplete", **details})
            for details in ({}, {"incomplete_details": {"reason": "max_output_tokens"}})
        ),
        *(
            ("google:m", {"candidates": [{"content": {"parts": [{"text": CUT_CODE}]}, "finishReason": reason}]})
            for reason in ("MAX_TOKENS", "RECITATION", "SAFETY", "OTHER")
        ),
    ],
)
def test_code_that_was_cut_short_is_not_run_whatever_its_provider_calls_that(address: str, body: Any) -> None:
    provider, _, model = address.partition(":")
    parser = dialect(PROVIDERS[provider], model, {}).parser()
    parser.feed(json.dumps(body).encode())
    reason = parser.close().finish_reason
    assert read(CodeActReader, CUT_CODE, finish_reason=reason)[2] == [("code_execution", "x = 1")]
    assert read(CodeActReader, CUT_CODE + "\n```\nand", finish_reason=reason)[2] == code("x = 1")


@pytest.mark.parametrize("reason", ["stop", "end_turn", "stop_sequence", "completed", "STOP", None])
def test_code_that_a_model_did_not_close_is_run_where_it_stopped_by_itself(reason: str | None) -> None:
    assert read(CodeActReader, CUT_CODE, finish_reason=reason)[2] == code("x = 1")


def test_what_a_provider_gave_beside_the_words_stays() -> None:
    own = gesta.reply(text="", calls=[gesta.call("put", x=1)])
    calls = own.calls if isinstance(own, Reply) else ()
    given = Reply(thought="hidden", calls=calls, usage={"total_tokens": 7}, model="m")
    made, _ = fed(ReActReader(), ["Thought: t\nFinal Answer: a"], given)
    assert made == msgspec.structs.replace(given, thought="hidden\n\nt", text="" if calls and not made.text else "a")


# any cut

PIECES = [
    *("Thought:", "Action:", "Args:", "Action Input 2:", "Observation:", "Final Answer:", "**Action:**", "### Code:"),
    *(
        "```",
        "```python",
        "```json\n",
        "````",
        "<code>",
        "</code>",
        "<co",
        "**",
        "#",
        ":",
        "Act",
        "ion",
        "Final ",
        "\r",
    ),
    *(
        "\n",
        "\n",
        "\n\n",
        " ",
        "\t",
        "look",
        "None",
        '{"x": 1}',
        "{'x': True,}",
        '{"x": "',
        '"',
        "'",
        "\\",
        "{",
        "}",
        "[",
    ),
    *("]", ",", "it's", "Arg\u017f:", "\ud800", "x" * 70, " " * 50, "`" * 15, "\x85", "\u2028"),
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=30).map("".join)


@both
@given(text=texts, data=st.data())
def test_however_it_is_cut_it_is_read_the_same(form: TextForm, text: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    cuts = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    expected, at_once = fed(form.reader(), [text])
    for pieces in (cuts, list(text)):
        made, deltas = fed(form.reader(), pieces)
        assert made == expected
        assert made.text.startswith(words(deltas, "text"))
        assert (made.thought or "").startswith(words(deltas, "thought"))
        assert words(deltas, "text") == words(at_once, "text")
        if made.calls:
            assert words(deltas, "text") == made.text == ""
        types = [delta.type for delta in deltas]
        assert types == sorted(types, reverse=True)  # thought, then text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: {"x": value})
)
def test_any_arguments_come_back_as_they_were_written(args: dict[str, Any]) -> None:
    for text in (json.dumps(args), json.dumps(args, ensure_ascii=False, indent=2)):
        assert read(ReActReader, f"Action: look\nArgs: {text}\nObservation: o")[2] == [("look", args)]
        assert json.loads(an_object(text)) == args


def test_an_answer_is_told_while_it_comes() -> None:
    reader = ReActReader()
    assert reader.feed("Thought: I kn") == [Delta("thought", "I kn")]
    assert reader.feed("ow\nFin") == [Delta("thought", "ow")]
    assert reader.feed("al Answer: It") == [Delta("text", "It")]
    assert reader.feed(" is\n\n") == [Delta("text", " is")]
    assert reader.feed("42.") == [Delta("text", "\n\n42.")]


def seconds(kind: Callable[[], Reader], cuts: Sequence[str], bound: float) -> float:
    """The best of some tries, until one keeps the bound; a run that is traced for coverage takes longer."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        fed(kind(), cuts)
        best = min(best, (time.process_time() - start) / (1 if sys.gettrace() is None else 5))
        if best < bound:
            break
    return best


LONG = 50_000
HARD = [
    *("Final Answer: " + "word " * (LONG // 5), "Final Answer:" + "\na" * (LONG // 2), "Final Answer: " + " " * LONG),
    *("Thought: " + "\n```" * (LONG // 4), "`" * LONG, "#" * LONG, " " * LONG, "*" * LONG, "Thought:" * (LONG // 8)),
    *(
        "Action: look\nArgs: " + json.dumps({"x": "y" * LONG}),
        "Action: look\nArgs: " + json.dumps({"x": [1] * (LONG // 3)}),
    ),
    *("Action: look\nArgs: {" + "'x': True," * (LONG // 10) + "}", 'Action: look\nArgs: {"x": "' + '\\"' * (LONG // 2)),
    *(
        "Action: look\nArgs: " + "{" * LONG,
        "Action: a\nArgs: {\n" * (LONG // 18),
        'Action: a\nArgs: {\\"\n' * (LONG // 20),
    ),
    *(
        "Action: " + "look " * (LONG // 5),
        "Action: None\n" * (LONG // 13) + "Final Answer: a",
        "Action: look\nArgs: {'" + "\\" * LONG,
    ),
    *("```python\n" + "x = 1\n" * (LONG // 6), "<code>" + "</code>  x" * (LONG // 10), "```python\n" + "x" * LONG),
]


@pytest.mark.sample(11)
@pytest.mark.parametrize("text", HARD, ids=lambda text: repr(text[:24]))
def test_reading_is_linear(text: str) -> None:
    for kind in (ReActReader, CodeActReader):
        assert seconds(kind, [text], 0.2) < 0.2
        assert seconds(kind, list(text[:20_000]), 0.5) < 0.5


# histories

AT = datetime(2026, 11, 21, tzinfo=UTC)


def run(*contents: Content) -> list[Entry]:
    return [Entry(run="r", seq=seq, at=AT, span=1, content=content) for seq, content in enumerate(contents, 1)]


def sent(form: TextForm, *contents: Content) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in form.format(run(*contents), form.start())]


def look(x: int) -> ToolCallContent:
    return ToolCallContent(tool_name="look", tool_args={"x": x})


def test_a_model_reads_its_own_words_and_no_observation_of_its_own() -> None:
    output = 'Thought: t\nAction: look\nArgs: {"x": 1}'
    made_up = f"{output}\nObservation: 7\nThought: u\nFinal Answer: 7"
    for said in (output, made_up, f"{output}\nFinal Answer: 7"):
        entries: list[Content] = [
            ChatCompletionContent(output=said),
            look(1),
            ToolResultContent(call=2, tool_result={"y": "é"}),
        ]
        assert sent(ReActText(), *entries) == [("assistant", output), ("user", 'Observation: {"y": "é"}')]
    block = "Thought: t\n```python\nx\n```"
    ran = ToolCallContent(tool_name="code_execution", tool_args={"code": "x"})
    for said in (block, f"{block}\nObservation: 7"):
        assert sent(CodeActText(), ChatCompletionContent(output=said), ran)[0] == ("assistant", block)


def test_native_calls_are_written_in_the_grammar_and_read_from_it_again() -> None:
    native: list[Content] = [
        ChatCompletionContent(output="Two."),
        look(1),
        ToolCallContent(tool_name="put", tool_args={"x": "é"}),
    ]
    results: list[Content] = [ToolResultContent(call=3, tool_result="b"), ToolResultContent(call=2, tool_result="a")]
    (_, said), told = sent(ReActText(), *native, *results)
    assert said == 'Thought: Two.\nAction: look\nArgs: {"x": 1}\nAction: put\nArgs: {"x": "é"}'
    assert read(ReActReader, said) == ("Two.", "", [("look", {"x": 1}), ("put", {"x": "é"})])
    assert told == ("user", "Observation 1: (look) a\nObservation 2: (put) b")
    assert read(ReActReader, f"{said}\n{told[1]}") == read(ReActReader, said)
    (_, said), _ = sent(CodeActText(), *native, *results)
    assert said == "Thought: Two.\n```python\nlook(x=1)\n```\n```python\nput(x='é')\n```"
    fenced = ToolCallContent(tool_name="code_execution", tool_args={"code": "'''\n```\n'''"})
    (_, said), _ = sent(CodeActText(), ChatCompletionContent(output=""), fenced)
    assert read(CodeActReader, said)[2] == code("'''\n```\n'''")


def test_calls_without_a_result_are_closed_and_late_ones_are_named() -> None:
    entries: list[Content] = [ChatCompletionContent(output=""), look(1), UserContent(value="well?")]
    late = ToolResultContent(call=2, tool_result="7", outcome="late")
    form, made = ReActText(), run(*entries, late)
    state = form.start()
    messages = [*form.format(made[:3], state), *form.format(made[3:], state)]
    assert [(one.role, one.text.split(" call_")[0]) for one in messages] == [
        ("assistant", 'Action: look\nArgs: {"x": 1}'),
        ("user", "Observation: This call has no result on record."),
        ("user", "well?"),
        ("user", "[Late result of call"),
    ]
    assert messages[3].text.endswith(" to look]\n7") and [one.sources for one in messages] == [(1, 2), (2,), (3,), (4,)]


def test_a_call_that_could_not_be_read_is_shown_as_it_was_written() -> None:
    failed = ToolCallContent(tool_name="unknown", tool_args={}, status="error", meta={"raw_args": "t"})
    told = ToolResultContent(call=2, tool_result="no", status="error", outcome="error")
    for form in FORMS:
        assert sent(form, ChatCompletionContent(output="Thought: t"), failed, told) == [
            ("assistant", "Thought: t"),
            ("user", "Observation: no"),
        ]
    odd = ToolCallContent(tool_name="get weather", tool_args={})
    assert sent(ReActText(), ChatCompletionContent(output="Action: get weather"), odd)[0][1] == "Action: get weather"


@both
def test_the_instructions_name_the_tools_and_the_grammar(form: TextForm) -> None:
    listed: list[dict[str, Any]] = [
        {"name": "look", "description": "Looks. {tools}", "args_schema": {"type": "object"}},
        {"name": "put"},
    ]
    header = RequestHeaderContent(tools=listed, meta={"model": "m", "instructions": "Be brief."})
    dressed = form.dress(header)
    assert (
        dressed.tools == listed
        and dressed.meta is not None
        and header.meta == {"model": "m", "instructions": "Be brief."}
    )
    assert dressed.meta["tools_in"] == "text" and dressed.meta["model"] == "m"
    text = dressed.meta["instructions"]
    assert text.startswith("Be brief.\n\n") and 'look: Looks. {tools}\nArguments: {"type": "object"}\n\nput\n' in text
    assert "Final Answer:" in text and form.dress(header) == dressed
    bare = form.dress(RequestHeaderContent())
    assert bare.meta == {"tools_in": "text"} and bare.tools is None
    code = {"name": "code_execution", "description": "Runs it."}
    meta = CodeActText().dress(RequestHeaderContent(tools=[code])).meta
    assert (
        meta is not None and "\n\nRuns it.\n\nWork" in meta["instructions"] and "functions" not in meta["instructions"]
    )


# whole runs

replies = st.lists(texts, min_size=1, max_size=4).map(lambda steps: [*steps, "Final Answer: done"])


def segments(form: TextForm, entries: Sequence[Entry]) -> list[Message]:
    state, made, segment = form.start(), list[Message](), list[Entry]()
    for entry in entries:
        if isinstance(entry.content, RequestContent):
            made += form.format(segment, state)
            segment = []
        segment.append(entry)
    return made + form.format(segment, state)


@both
@given(script=scripts | replies)
def test_every_history_is_valid_whatever_a_model_writes(form: TextForm, script: list[Any]) -> None:
    async def main() -> None:
        tape = Tape()
        acting = agent(World(), script, formatter=form)
        (outcome,) = await play(tape, acting)
        assert outcome.reason in {"answered", "failed"}
        entries = await Record(tape, lambda made: made).read(outcome.run)
        for request in bodies(acting, entries):
            assert violations(request.body()) == []
        messages = segments(form, entries)
        assert not any(message.calls or message.role == "tool" for message in messages)

    anyio.run(main)


@both
@given(script=scripts)
def test_at_every_prefix_of_a_native_run_no_action_is_left_without_an_observation(
    form: TextForm, script: list[Any]
) -> None:
    async def main() -> None:
        _, _, entries = await whole(script)
        for place in range(2, len(entries) + 1):
            messages = segments(form, entries[:place])
            for message, after in zip(messages, [*messages[1:], None], strict=True):
                seqs = {seq for seq in message.sources if isinstance(entries[seq - 1].content, ToolCallContent)}
                if message.role == "assistant" and seqs:
                    assert after is not None and after.role == "user" and after.text.startswith("Observation")
                    assert len(after.sources) == len(seqs)

    anyio.run(main)


async def test_a_run_in_words_acts_and_answers_and_streams() -> None:
    script = [
        "Thought: I look twice.\nAction: look\nArgs: {\"x\": 1}\nAction: look\nArgs: {'x': 2}\nObservation: saw 9",
        "Thought: hm",
        'Action: look\nArgs: {"x": }',
        "Thought: I know.\nFinal Answer: saw 1\n\nand 2",
    ]
    async with gesta.open() as record:
        acting = agent(World(), script, formatter=ReActText())
        events = [event async for event in record.stream(acting, "go", session="s")]
        answer = "".join(event.content for event in events if event.type == "answer")
        assert answer == "saw 1\n\nand 2" and not any(event.type == "retract" for event in events)
        entries = await record.read(events[-1].run)
        contents = [entry.content for entry in entries]
        calls = [content for content in contents if isinstance(content, ToolCallContent)]
        assert [(call.tool_name, call.tool_args, call.status) for call in calls] == [
            ("look", {"x": 1}, "success"),
            ("look", {"x": 2}, "success"),
            ("unknown", {}, "error"),
            ("look", {}, "error"),
        ]
        results = [content.tool_result for content in contents if isinstance(content, ToolResultContent)]
        assert results[:2] == ["saw 1", "saw 2"] and len(results) == 4
        assert [content.output for content in contents if isinstance(content, ChatCompletionContent)] == script
        (said,) = (content for content in contents if isinstance(content, AssistantContent))
        assert said.value == "saw 1\n\nand 2"
        header = next(content for content in contents if isinstance(content, RequestHeaderContent))
        assert header.meta is not None and all(tool.name in header.meta["instructions"] for tool in tools(World()))


async def test_the_model_reads_its_tools_the_question_its_own_steps_and_what_was_wrong() -> None:
    steps = ['Thought: t\nAction: look\nArgs: {"x": 1}', 'Action: look\nArgs: {"x": 1,,}']
    acting = agent(World(), [*steps, "Final Answer: a"], formatter=ReActText(), instructions="Be brief.")
    async with gesta.open() as record:
        outcome = await record.run(acting, "go", session="s")
        entries = await record.read(outcome.run)
    (header,) = (entry.content for entry in entries if isinstance(entry.content, RequestHeaderContent))
    instructions = (header.meta or {})["instructions"]
    assert instructions.startswith("Be brief.\n\n")
    for tool in tools(World()):
        assert f"\n\n{tool.name}\nArguments: {json.dumps(tool.args_schema)}" in instructions
    system, *told = json.loads(bodies(acting, entries)[2].body())["messages"]
    assert system["role"] == "system"
    assert [(one["role"], one["content"]) for one in told[:4]] == [
        ("user", "go"),
        ("assistant", steps[0]),
        ("user", "Observation: saw 1"),
        ("assistant", steps[1]),
    ]
    (problem,) = told[4:]
    assert problem["role"] == "user" and problem["content"].startswith(
        "Observation: The arguments of 'look' are not JSON"
    )


async def test_the_thought_is_told_and_on_record_before_the_action() -> None:
    script = ['Thought: I look.\nAction: look\nArgs: {"x": 1}', "Thought: I know.\nFinal Answer: a"]
    async with gesta.open() as record:
        acting = agent(World(), script, formatter=ReActText())
        events = [event async for event in record.stream(acting, "go", session="s")]
        entries = await record.read(events[-1].run)
    told = [event.explain_graph.node if event.explain_graph else event.type for event in events]
    place = told.index("Analysis")
    assert set(told[:place]) == {"Question", "thought"}
    assert "".join(event.content for event in events[:place]) == "I look."
    completion = next(entry for entry in entries if isinstance(entry.content, ChatCompletionContent))
    assert events[place].explain_id == completion.id, "the analysis is told as one, though it has a thought"
    after = ["Thought", "call", "ToolUse", "result", "observation", "Observation"]
    assert told[place + 1 : place + 7] == after
    order = [entry.kind for entry in entries if entry.kind in ("thought", "tool-call", "attempt", "tool-result")]
    assert order == ["thought", "tool-call", "attempt", "tool-result", "thought"]


async def test_a_run_in_code_acts_and_answers() -> None:
    ran: list[str] = []

    @gesta.tool(effect="pure")
    async def code_execution(code: str) -> str:
        ran.append(code)
        return "2"

    script = ["Thought: I add.\n```python\nprint(1 + 1)\n```\nObservation: 3", "Thought: t\nFinal Answer: It is 2."]
    async with gesta.open() as record:
        acting = agent(World(), script, formatter=CodeActText(), tools=[code_execution])
        outcome = await record.run(acting, "1 + 1?", session="s")
        assert (outcome.answer, ran) == ("It is 2.", ["print(1 + 1)"])
