"""History formatters: the dict, each hook, any run read, and written back; every history they make is valid."""

import ast
import copy
import itertools
import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import COSTLY
from tests.laws.scenes import Tape, World, again, agent, play
from tests.laws.test_histories import bodies, scripts
from tests.laws.test_resume import whole
from tests.validators.chat_completions import history_violations, violations

import gesta
from gesta.compat.kodeagent.codeact import CODE_ACT_PSEUDO_TOOL_NAME, CodeActHistoryFormatter
from gesta.compat.kodeagent.history import NO_ID, HistoryFormatter
from gesta.compat.kodeagent.kutils import INLINED, make_user_message, parts_of, text_of
from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.compat.kodeagent.models import ChatMessage
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.entry import Entry
from gesta.formatters.codeact_text import code_of
from gesta.formatters.tool_calls import UNANSWERED, ToolCalls
from gesta.kinds import (
    AssistantContent,
    ChatCompletionContent,
    Content,
    Kind,
    Part,
    RequestContent,
    SystemContent,
    ThoughtContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.log.journal import Journal, Log
from gesta.message import Message
from gesta.prompt import observation_text
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore

ROOT = Path(__file__).resolve().parents[2]
FORMATTERS = [ReActHistoryFormatter(), CodeActHistoryFormatter()]
both = pytest.mark.parametrize("made_by", FORMATTERS, ids=lambda one: one.name)
AT = datetime(2026, 11, 21, tzinfo=UTC)
OWN: list[Content] = [
    UserContent(value="go"),
    ChatCompletionContent(output="Thought: two ways\nAction: look"),
    ThoughtContent(value="two ways"),
]


def run(*contents: Content | tuple[Content, tuple[int, ...]]) -> list[Entry]:
    """Entries of a run, each with its causes."""
    pairs = [pair if isinstance(pair, tuple) else (pair, ()) for pair in contents]
    return [
        Entry(run="r", seq=seq, at=AT, span=1, causes=causes, content=content)
        for seq, (content, causes) in enumerate(pairs, 1)
    ]


def look(x: int = 1, own: str | None = None) -> ToolCallContent:
    return ToolCallContent(tool_name="look", tool_args={"x": x}, tool_call_id=own)


def sent(made_by: HistoryFormatter, entries: Sequence[Entry]) -> list[Message]:
    return made_by.format(entries, made_by.start())


# the dict


def message() -> LLMMessage:
    return LLMMessage(role="user", content="hi", _thought="t", files=["a"])


def test_metadata_is_reached_by_every_way_and_seen_by_none() -> None:
    made = message()
    assert made["_thought"] == made.get("_thought") == made._thought == "t"
    assert "_thought" in made and "files" in made and "role" in made
    assert made.get("nothing") is None and made.get("nothing", 7) == 7
    payload = {"role": "user", "content": "hi"}
    assert list(made) == ["role", "content"] and len(made) == 2
    assert dict(made) == {**made} == json.loads(json.dumps(made)) == json.loads(msgspec.json.encode(made)) == payload
    assert list(made.keys()) == list(payload) and list(made.items()) == list(payload.items())
    assert "{role} {content}".format(**made) == "user hi"
    with pytest.raises(KeyError):
        "{_thought}".format(**made)
    assert repr(made) == "LLMMessage({'role': 'user', 'content': 'hi', 'files': ['a'], '_thought': 't'})"
    with pytest.raises(KeyError, match="nothing"):
        made["nothing"]
    with pytest.raises(AttributeError, match="no field 'nothing'"):
        made.nothing  # noqa: B018


def test_update_takes_a_mapping_pairs_and_keywords_and_no_two_positionals() -> None:
    made = message()
    made.update({"content": "a", "_x": 1}, _y=2)
    made.update([("name", "n"), ("_z", 3)])
    made.update(LLMMessage(_w=4))
    made.update()
    assert dict(made) == {"role": "user", "content": "a", "name": "n"}
    assert (made["_x"], made["_y"], made["_z"], made["_w"]) == (1, 2, 3, 4)
    with pytest.raises(TypeError):
        made.update({}, {})


def test_methods_are_no_keys_and_keys_break_no_methods() -> None:
    made = message()
    for name in ("update", "copy", "get", "items", "_ALLOWED_KEYS", "__class__", "_LLMMessage__more"):
        assert name not in made and made.get(name) is None
    made["copy"], made["update"] = "c", "u"
    assert made["copy"] == "c" and "update" in made
    made.update(content="later")
    assert made.copy()["copy"] == "c" and made["content"] == "later"


def test_copies_keep_metadata() -> None:
    made = message()
    copies = [made.copy(), copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made | {}, {} | made]
    for copied in copies:
        assert type(copied) is LLMMessage and copied == made and copied["files"] == ["a"]
    copies[0]["_thought"] = "another"
    assert made["_thought"] == "t" and copies[0] != made
    assert copies[2]["files"] is not made["files"] and copies[1]["files"] is made["files"]
    assert made == {"role": "user", "content": "hi"} and made != {"role": "user"}


def test_taking_out_and_merging_treat_metadata_as_such() -> None:
    made = message()
    assert made.pop("_thought") == "t" and "_thought" not in made and made.pop("_thought", 0) == 0
    del made["files"]
    assert "files" not in made
    for missing in ("files", "name"):
        with pytest.raises(KeyError):
            del made[missing]
        with pytest.raises(KeyError):
            made.pop(missing)
    assert made.setdefault("_x", 1) == made.setdefault("_x", 2) == 1 and made.setdefault("role", "no") == "user"
    made |= {"_y": 1, "name": "n"}
    made |= [("_z", 2)]
    assert type(made) is LLMMessage and list(made) == ["role", "content", "name"] and made["_z"] == 2
    made._y = 5
    assert made["_y"] == 5
    del made._y
    assert "_y" not in made
    with pytest.raises(AttributeError):
        del made._y
    with pytest.raises(TypeError):
        made | 3
    with pytest.raises(TypeError):
        3 | made
    made.clear()
    assert len(made) == 0 and "_z" not in made


@given(st.dictionaries(st.text(max_size=8), st.integers()), st.dictionaries(st.text(max_size=8), st.integers()))
def test_it_is_a_dict_of_all_its_fields_to_whoever_names_them(first: dict[str, int], second: dict[str, int]) -> None:
    made, known = LLMMessage(**first), dict(first)
    assert all(made[key] == value for key, value in known.items())
    made |= second
    known |= second
    assert all(key in made and made.get(key) == value for key, value in known.items())
    assert set(made) == set(known) & LLMMessage._ALLOWED_KEYS
    for key in known:
        assert made.pop(key) == known[key] and key not in made


# messages of people


def test_text_images_and_files_become_parts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short")
    (tmp_path / "long.txt").write_text("x" * (INLINED + 1))
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe")
    (tmp_path / "c.png").write_bytes(b"png")
    names = ["a.txt", "long.txt", "b.bin", "c.png", "gone.txt"]
    files = [str(tmp_path / name) for name in names]
    files += ["https://e.org/x.PNG?size=2", "https://e.org/png.html", "data:image/png;base64,AA==", "nul\0"]
    (made,) = make_user_message(
        "see", [*files, Part(type="image", blob="b1"), Part(type="file", blob="b2"), Part(type="text", text="t")]
    )
    shown = [part.get("text") or part.get("image_url", part.get("file")) for part in made["content"]]
    assert shown == [
        "see",
        f"File {files[0]} content:\nshort",
        f"Input file: {files[1]} (5001 bytes, not shown)",
        f"Input file: {files[2]}",
        {"url": "data:image/png;base64,cG5n"},
        f"Input file: {files[4]} (it cannot be read: FileNotFoundError)",
        {"url": "https://e.org/x.PNG?size=2"},
        "File URL: https://e.org/png.html",
        {"url": "data:image/png;base64,AA=="},
        "Input file: nul\0 (it cannot be read: ValueError)",
        {"url": "blob:b1"},
        {"file_id": "blob:b2"},
        "t",
    ]
    assert history_violations([dict(made)]) == []


def test_content_may_be_nothing_or_parts_already() -> None:
    assert (
        make_user_message(None)[0]["content"] == make_user_message([])[0]["content"] == [{"type": "text", "text": ""}]
    )
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://e.org/x.png"}}]
    (made,) = make_user_message(parts, "https://e.org/y.gif")
    assert made["content"][:2] == parts and len(made["content"]) == 3
    text, more = parts_of(made["content"], None)
    assert text == "a" and [part.text for part in more] == [
        "[image https://e.org/x.png]",
        "[image https://e.org/y.gif]",
    ]
    assert text_of(5) == "5" and text_of([{"type": "odd"}, 3, "s"]) == "[odd]\n[a part of type int]\ns"


@both
def test_files_on_record_reach_the_model_as_parts(made_by: HistoryFormatter) -> None:
    parts = [Part(type="image", blob="b1", media_type="image/png", name="i"), Part(type="file", blob="b2", name="f")]
    (made,) = sent(made_by, run(UserContent(value="see", parts=parts)))
    assert made == Message(role="user", text="see", parts=tuple(parts), sources=(1,))
    (shown,) = made_by.history(run(UserContent(value="see", parts=parts)))
    assert shown["files"] == tuple(parts) and shown["_task_successful"] is True


# hooks


def test_a_react_action_is_a_call() -> None:
    made_by, state = ReActHistoryFormatter(), {"last_tool_call_id": None, "pending_tool_call": False}
    msg = ChatMessage(role="assistant", thought="t", action="look", args='{"x": 1}', files=["f"])
    made = made_by.format_tool_call(msg, state)
    call = made["tool_calls"][0]
    assert made["role"] == "assistant" and made["content"] is None
    assert call["function"] == {"name": "look", "arguments": '{"x": 1}'} and call["type"] == "function"
    assert state == {"last_tool_call_id": call["id"], "pending_tool_call": True}
    whole = made_by.pydantic_to_dict(msg)
    assert dict(whole) == made
    assert whole["_task_successful"] is False and whole["_thought"] == "t" and whole["files"] == ["f"]
    assert (whole["_action"], whole["_args"]) == ("look", '{"x": 1}')
    assert (
        made_by.format_tool_call(ChatMessage(role="assistant", action="now"), {})["tool_calls"][0]["function"][
            "arguments"
        ]
        == "{}"
    )


def test_a_piece_of_code_is_a_call() -> None:
    made_by, state = CodeActHistoryFormatter(), dict[str, Any]()
    made = made_by.format_tool_call(ChatMessage(role="assistant", code="print(1)"), state)
    assert made["tool_calls"][0]["function"] == {"name": CODE_ACT_PSEUDO_TOOL_NAME, "arguments": '{"code": "print(1)"}'}
    assert CODE_ACT_PSEUDO_TOOL_NAME == "code_execution" and state == {"last_tool_call_id": made["tool_calls"][0]["id"]}
    whole = made_by.pydantic_to_dict(ChatMessage(role="assistant", code="print(1)"))
    assert whole["_code"] == "print(1)" and whole["_task_successful"] is False and "_action" not in whole
    assert made_by.should_format_as_tool_call(ChatMessage(role="assistant", action="look", args="{}")) is False


@pytest.mark.parametrize(
    ("fields", "react", "code"),
    [
        ({"action": "look", "args": "{}"}, True, False),
        ({"action": "look"}, True, False),
        ({"action": "FINISH"}, False, False),
        ({"action": "FINISH", "args": "{}"}, True, False),
        ({"action": "look", "args": "{}", "final_answer": ""}, False, False),
        ({"code": "x"}, False, True),
        ({"code": ""}, False, False),
        ({"code": "x", "final_answer": "42"}, False, False),
        ({"role": "user", "action": "look", "args": "{}", "code": "x"}, False, False),
        ({"role": "tool", "action": "look", "args": "{}", "code": "x"}, False, False),
    ],
)
def test_which_messages_are_calls(fields: dict[str, Any], react: bool, code: bool) -> None:
    msg = ChatMessage(**{"role": "assistant", **fields})
    assert ReActHistoryFormatter().should_format_as_tool_call(msg) is react
    assert CodeActHistoryFormatter().should_format_as_tool_call(msg) is code


@both
def test_an_answer_comes_after_a_call_and_before_the_rest_and_may_be_empty(made_by: HistoryFormatter) -> None:
    fields: dict[str, Any] = {"action": "FINISH", "code": None, "thought": "t"}
    for answer in ("42", ""):
        made = made_by.pydantic_to_dict(ChatMessage(role="assistant", final_answer=answer, **fields))
        assert dict(made) == {"role": "assistant", "content": answer}
        assert made["_task_successful"] is True and made["_thought"] == "t" and "files" in made
        assert made.get("_action") == ("FINISH" if isinstance(made_by, ReActHistoryFormatter) else None)
    both_given = ChatMessage(role="assistant", action="look", args="{}", code="c", final_answer="42")
    assert made_by.pydantic_to_dict(both_given)["content"] == "42"
    failed = ChatMessage(role="assistant", final_answer="I could not", task_successful=False)
    assert made_by.pydantic_to_dict(failed)["_task_successful"] is False


@both
def test_other_messages_stay_as_they_are(made_by: HistoryFormatter) -> None:
    for role in ("system", "assistant"):
        made = made_by.pydantic_to_dict(ChatMessage(role=role, content="c"))
        assert dict(made) == {"role": role, "content": "c"} and made["_task_successful"] is True
        assert made["_thought"] is None and made["files"] is None
    tool = made_by.pydantic_to_dict(ChatMessage(role="tool", content="c", tool_call_id="i", action="look"))
    assert dict(tool) == {"role": "tool", "content": "c", "tool_call_id": "i", "name": "look"}
    user = made_by.pydantic_to_dict(ChatMessage(role="user", content="c"))
    assert user["content"] == [{"type": "text", "text": "c"}]
    unfinished = ChatMessage(role="assistant", action="FINISH", content="c")
    assert dict(made_by.pydantic_to_dict(unfinished)) == {"role": "assistant", "content": "c"}


def test_ids_are_the_same_again() -> None:
    made_by = ReActHistoryFormatter()
    msg = ChatMessage(role="assistant", action="look", args="{}")
    assert made_by._generate_tool_call_id(msg) == made_by._generate_tool_call_id(msg)
    assert made_by._generate_tool_call_id(ChatMessage(role="assistant", tool_call_id="own")) == "own"
    assert made_by.pydantic_to_dict(msg) == made_by.pydantic_to_dict(msg)


def test_a_hook_that_draws_an_id_without_its_message_gets_one_of_its_own_for_each_message() -> None:
    class Drawing(ReActHistoryFormatter):
        def format_tool_call(self, msg: ChatMessage, state: dict[str, Any]) -> dict[str, Any]:
            function = {"name": msg.action, "arguments": msg.args}
            return {"role": "assistant", "tool_calls": [{"id": self._generate_tool_call_id(), "function": function}]}

    def id_of(text: str) -> str:
        msg = ChatMessage(role="assistant", action="look", args=text)
        made: str = Drawing().pydantic_to_dict(msg)["tool_calls"][0]["id"]
        return made

    assert id_of('{"x": 1}') == id_of('{"x": 1}') != id_of('{"x": 2}')
    assert len({Drawing()._generate_tool_call_id() for _ in range(9)} - {NO_ID}) == 9
    msg = ChatMessage(role="assistant", action="look", args="{}")
    assert len({Drawing().format_tool_call(msg, {})["tool_calls"][0]["id"] for _ in range(9)}) == 9
    on_record = sent(Drawing(), run(look(1), look(1, "own")))
    assert [call.id for one in on_record for call in one.calls] == [
        call.id for one in sent(ReActHistoryFormatter(), run(look(1), look(1, "own"))) for call in one.calls
    ]


def test_views_are_dumped_as_the_original_is() -> None:
    assert ChatMessage(role="user", content="c").model_dump()["content"] == "c"


# runs


@both
def test_ids_follow_the_rule_of_the_record_and_the_original_is_kept(made_by: HistoryFormatter) -> None:
    entries = run(look(1, "own"), look(2), look(3, "own"), look(4, "x" * 50))
    native = [call.id for made in ToolCalls().format(entries, ToolCalls().start()) for call in made.calls]
    assert [call.id for made in sent(made_by, entries) for call in made.calls] == native
    assert native[0] == "own" and len(set(native)) == 4
    kept = [made.get("_tool_call_id") for made in made_by.history(entries) if "tool_calls" in made]
    assert kept == [None, None, "own", "x" * 50]


@both
def test_an_interrupted_call_gets_a_placeholder_and_the_state_says_so(made_by: HistoryFormatter) -> None:
    state = made_by.start()
    assert state == {"last_tool_call_id": None, "pending_tool_call": False}
    entries = run(UserContent(value="go"), (ChatCompletionContent(output="first"), ()), (look(1, "own"), (2,)))
    asked, calls, placeholder = made_by.format(entries, state)
    assert asked.text == "go" and calls.text == "first"
    assert placeholder == Message(role="tool", text=UNANSWERED, call_id="own", name=calls.calls[0].name, sources=(3,))
    assert state == {"last_tool_call_id": None, "pending_tool_call": False}
    late = run(*[entry.content for entry in entries], ToolResultContent(call=3, tool_result="found"))[3:]
    (told,) = made_by.format(late, state)
    assert told.role == "user" and told.text == "[Late result of call own to look]\nfound"


def test_a_hook_sees_whether_a_call_waits() -> None:
    seen: list[tuple[Any, Any, Any]] = []

    class Watching(ReActHistoryFormatter):
        def _get_extra_metadata(self, msg: ChatMessage) -> dict[str, Any]:
            if msg.role == "tool" and msg.state is not None:
                seen.append((msg.content, msg.state["last_tool_call_id"], msg.state["pending_tool_call"]))
            return {}

    sent(Watching(), run(look(1, "a"), ToolResultContent(call=1, tool_result="r"), look(2, "b")))
    assert seen == [("r", "a", False), (UNANSWERED, "b", True)]


def test_a_native_run_is_shown_as_react() -> None:
    entries = run(
        UserContent(value="go"),
        ChatCompletionContent(output="Two at once."),
        (ThoughtContent(value="hidden reasoning"), (2,)),
        (look(1), (2,)),
        (look(2), (2,)),
        (ToolResultContent(call=5, tool_result={"n": 2}), (5,)),
        (ToolResultContent(call=4, tool_result="one"), (4,)),
        ChatCompletionContent(output="Done."),
        (AssistantContent(value="Done."), (8,)),
    )
    made = sent(ReActHistoryFormatter(), entries)
    assert [(one.role, one.text, one.sources) for one in made] == [
        ("user", "go", (1,)),
        ("assistant", "Two at once.", (2, 4)),
        ("tool", "one", (7,)),
        ("assistant", "", (5,)),
        ("tool", '{"n": 2}', (6,)),
        ("assistant", "Done.", (8,)),
    ]
    assert made[1].calls[0].args == {"x": 1} and made[1].calls[0].id == made[2].call_id
    assert [one.get("_action") for one in ReActHistoryFormatter().history(entries)] == [
        None,
        "look",
        "look",
        "look",
        "look",
        "FINISH",
    ]


def test_a_native_run_is_shown_as_code() -> None:
    made = sent(CodeActHistoryFormatter(), run(look(1), ToolResultContent(call=1, tool_result="one")))
    assert made[0].calls[0].name == CODE_ACT_PSEUDO_TOOL_NAME and made[0].calls[0].args == {"code": "look(x=1)"}
    assert made[1].name == CODE_ACT_PSEUDO_TOOL_NAME and made[1].text == "one"
    own = ToolCallContent(tool_name=CODE_ACT_PSEUDO_TOOL_NAME, tool_args={"code": "print(1)"})
    assert sent(CodeActHistoryFormatter(), run(own))[0].calls[0].args == {"code": "print(1)"}
    assert code_of("f", {"a b": None}) == "f(**{'a b': None})"
    assert code_of("f", {"n": 10**5000}).startswith("f(**")


@both
def test_the_agents_own_thought_is_shown_again_and_its_form_is_not(made_by: HistoryFormatter) -> None:
    entries = run(*OWN[:2], (OWN[2], (2,)), (look(), (2,)), ToolResultContent(call=4, tool_result="r"))
    _, acted, _ = sent(made_by, entries)
    assert acted.text == "two ways" and len(acted.calls) == 1
    assert made_by.history(entries)[1]["_thought"] == "two ways"
    written = json.dumps({"thought": 'say "é"', "answer": "42"})
    entries = run(
        ChatCompletionContent(output=written), ThoughtContent(value='say "é"'), (AssistantContent(value="42"), (1,))
    )
    assert [one.text for one in sent(made_by, entries)] == ['say "é"\n\n42']


@both
def test_what_a_person_was_shown_is_not_put_into_the_models_mouth(made_by: HistoryFormatter) -> None:
    entries = run(ChatCompletionContent(output="answer: 42"), (AssistantContent(value="zweiundvierzig"), (1,)))
    assert [one.text for one in sent(made_by, entries)] == ["answer: 42"]
    assert [one.text for one in sent(made_by, run(AssistantContent(value="hello")))] == ["hello"]
    assert [one.text for one in sent(made_by, run(ChatCompletionContent(output="hm")))] == ["hm"]
    assert sent(made_by, run(ChatCompletionContent(output=""), (AssistantContent(value=""), (1,)))) == []


# whatever hooks return


class Wild(ReActHistoryFormatter):
    """Formatter whose every message is chosen by a test."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def pydantic_to_dict(self, msg: ChatMessage) -> LLMMessage:
        return self.made(msg) if callable(self.made) else self.made


call_ids = st.sampled_from([None, "", "same", NO_ID, "x" * 41, "é", 7])
wild_arguments = st.sampled_from(["{}", "[1]", "{", None, {"x": 1}, '{"x": NaN}', 3])
functions = st.fixed_dictionaries({"name": st.sampled_from(["look", "a b", "", "é" * 70]), "arguments": wild_arguments})
wild_calls = st.fixed_dictionaries({"id": call_ids, "function": functions})
wild_messages = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "tool", "system", "other", None]),
        "content": st.sampled_from([None, "", "c", [], [{"type": "text", "text": "p"}], 5, [3], {"a": 1}]),
        "tool_calls": st.sampled_from([None, [], [{}], "no"]) | st.lists(wild_calls, min_size=1, max_size=2),
        "tool_call_id": call_ids,
        "name": st.sampled_from(["look", "a b"]),
        "_thought": st.sampled_from([None, "t", 3]),
        "files": st.none() | st.just([1]),
    },
).map(lambda fields: LLMMessage(**fields))
answers: list[Content] = [
    UserContent(value="go"),
    ChatCompletionContent(output="two"),
    look(1),
    look(2, "own"),
    ToolResultContent(call=3, tool_result="r"),
]
ANY_RUN = run(
    SystemContent(value="s"),
    *answers[:1],
    *answers[1:4],
    ToolResultContent(call=4, tool_result="r"),
    ChatCompletionContent(output="end"),
)


@given(st.lists(wild_messages | st.builds(dict, wild_messages), min_size=1, max_size=12))
def test_every_history_is_valid_whatever_hooks_return(answers: list[Any]) -> None:
    left = iter(answers * 12)
    made = sent(Wild(lambda _: next(left)), ANY_RUN)
    asked = gesta.scripted("x")
    assert made and history_violations([json.loads(asked.encode(one)) for one in made]) == []
    assert {seq for one in made for seq in one.sources} <= {entry.seq for entry in ANY_RUN}


some_text = st.sampled_from(["", "a", "a b", "\ud800"])
some_contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(UserContent, value=some_text),
    st.builds(SystemContent, value=some_text),
    st.builds(AssistantContent, value=some_text),
    st.builds(ChatCompletionContent, output=some_text),
    st.builds(ThoughtContent, value=some_text),
    st.builds(
        ToolCallContent,
        tool_name=st.sampled_from(["look", "", "a b", "FINISH", CODE_ACT_PSEUDO_TOOL_NAME]),
        tool_args=st.sampled_from(
            [{}, {"x": 1}, {"code": "print(1)"}, {"code": ""}, {"code": 3}, {"\ud800": float("nan")}]
        ),
        tool_call_id=st.sampled_from([None, "", "own", "x" * 50]),
    ),
    st.builds(
        ToolResultContent,
        tool_result=some_text,
        call=st.none() | st.integers(1, 9),
        tool_call_id=st.sampled_from([None, "own"]),
    ),
)
some_entries = st.lists(
    st.tuples(some_contents, st.lists(st.integers(1, 9), max_size=2).map(tuple)), min_size=1, max_size=12
)


@both
@given(contents=some_entries, cuts=st.sets(st.integers(1, 11)))
def test_entries_in_any_order_and_cut_anywhere_give_a_valid_history(
    made_by: HistoryFormatter, contents: list[tuple[Content, tuple[int, ...]]], cuts: set[int]
) -> None:
    entries, state, made = run(*contents), made_by.start(), list[Message]()
    places = [0, *sorted(cut for cut in cuts if cut < len(entries)), len(entries)]
    for first, last in itertools.pairwise(places):
        made += made_by.format(entries[first:last], state)
    asked = gesta.scripted("x")
    encoded = [json.loads(asked.encode(one)) for one in made]
    assert [
        found for found in history_violations(encoded) if found != "messages: empty array, needs an item at least"
    ] == []
    native, kept = ToolCalls(), ToolCalls().start()
    usual = [one for first, last in itertools.pairwise(places) for one in native.format(entries[first:last], kept)]
    seen = {seq for one in made for seq in one.sources}
    assert seen == {seq for one in usual if one.role != "assistant" or one.text or one.calls for seq in one.sources}


def test_a_call_that_is_not_sent_as_one_keeps_its_result() -> None:
    class Text(ReActHistoryFormatter):
        def should_format_as_tool_call(self, msg: ChatMessage) -> bool:
            return False

    made = sent(
        Text(), run(ChatCompletionContent(output="let me look"), look(), ToolResultContent(call=2, tool_result="r"))
    )
    assert [(one.role, one.text, one.calls) for one in made] == [
        ("assistant", "let me look", ()),
        ("user", "[Result of look]\nr", ()),
    ]
    made = sent(Text(), run(look()))
    assert [(one.role, one.text) for one in made] == [("user", f"[Result of look]\n{UNANSWERED}")]


def test_a_call_that_a_hook_makes_up_is_answered() -> None:
    class Answering(ReActHistoryFormatter):
        def should_format_as_tool_call(self, msg: ChatMessage) -> bool:
            return msg.final_answer is not None

        def format_tool_call(self, msg: ChatMessage, state: dict[str, Any]) -> dict[str, Any]:
            function = {"name": "final_answer", "arguments": {"answer": msg.final_answer}}
            return {"role": "assistant", "tool_calls": [{"id": self._generate_tool_call_id(), "function": function}]}

    made = sent(Answering(), run(AssistantContent(value="42"), AssistantContent(value="43")))
    assert [one.role for one in made] == ["assistant", "tool"] * 2
    assert made[0].calls[0].args == {"answer": "42"} and made[1].text == UNANSWERED
    assert len({call.id for one in made for call in one.calls} - {NO_ID}) == 2


def test_a_name_is_of_the_class_so_a_change_is_seen_on_record() -> None:
    class Mine(ReActHistoryFormatter):
        version = 2

    assert (ReActHistoryFormatter().name, Mine().name) == ("ReActHistoryFormatter/1", "Mine/2")


# laws


@both
@given(script=scripts)
def test_every_history_is_valid_whatever_a_model_writes(made_by: HistoryFormatter, script: list[Any]) -> None:
    async def main() -> None:
        tape = Tape()
        acting = agent(World(), script, formatter=made_by)
        (outcome,) = await play(tape, acting)
        entries = await Record(tape, lambda made: made).read(outcome.run)
        for request in bodies(acting, entries):
            assert violations(request.body()) == []
        requests = [entry.content for entry in entries if isinstance(entry.content, RequestContent)]
        digests = [request.digest for request in bodies(acting, entries)]
        assert [request.body_digest for request in requests] == digests[:-1]

    anyio.run(main)


@both
@COSTLY
@given(script=scripts)
def test_at_every_prefix_calls_are_closed(made_by: HistoryFormatter, script: list[Any]) -> None:
    async def main() -> None:
        tape, _, _ = await whole(script)  # recorded with native calls
        acting = agent(World(), script, formatter=made_by)
        store = await again(tape.tape)
        entries = await Record(store, lambda made: made).read(tape.tape[0].lease.run)
        for place in range(2, len(entries) + 1):
            for request in bodies(acting, entries[:place]):
                assert violations(request.body()) == []

    anyio.run(main)


@both
def test_dicts_of_a_run_are_valid_too(made_by: HistoryFormatter) -> None:
    async def main() -> None:
        script = [["both", gesta.call("look", x=1), gesta.call("nope")], [gesta.call("fail", x=2)], "done"]
        _, _, entries = await whole(script)
        made = made_by.history(entries)
        assert history_violations(json.loads(json.dumps(made))) == []
        assert made == made_by.history(entries)
        assert [one["name"] for one in made if one["role"] == "tool"] == [
            one["tool_calls"][0]["function"]["name"] for one in made if "tool_calls" in one
        ]

    anyio.run(main)


@both
def test_segments_and_the_whole_give_the_same(made_by: HistoryFormatter) -> None:
    async def main() -> None:
        script = [["both", gesta.call("look", x=1), gesta.call("look", x=2)], [gesta.call("put", x=2)], "done"]
        _, _, entries = await whole(script)
        state, made, segment = made_by.start(), list[Message](), list[Entry]()
        for entry in entries:
            segment.append(entry)
            if entry.kind is Kind.Request:
                made += made_by.format(segment, state)
                segment = []
        assert made + made_by.format(segment, state) == sent(made_by, entries)

    anyio.run(main)


# and back

thoughts = st.none() | st.sampled_from(["I look", 'ünd "so"\n', ""])
args = st.dictionaries(st.sampled_from(["x", "y"]), st.integers() | st.text(max_size=3), max_size=2).map(
    observation_text
)
written = {
    "ReActHistoryFormatter/1": st.builds(
        lambda thought, args: ChatMessage(role="assistant", thought=thought, action="look", args=args),
        thoughts,
        args,
    ),
    "CodeActHistoryFormatter/1": st.builds(
        lambda thought, code: ChatMessage(role="assistant", thought=thought, code=code),
        thoughts,
        st.sampled_from(["print(1)", "x = 'é'"]),
    ),
}
finals = st.builds(
    lambda thought, answer: ChatMessage(role="assistant", thought=thought, final_answer=answer),
    thoughts,
    st.sampled_from(["42", "a b"]),
)


@both
@given(data=st.data())
def test_messages_written_as_entries_are_read_again(made_by: HistoryFormatter, data: st.DataObject) -> None:
    steps = data.draw(st.lists(written[made_by.name] | finals, min_size=1, max_size=5))

    async def main() -> list[Entry]:
        store = MemoryStore()
        log = Log(Journal(store, await store.lease("r"), lambda: AT), 1, ())
        made = made_by.write(log, ChatMessage(role="user", content="go"))
        for step in steps:
            made += made_by.write(log, step)
            if isinstance(made[-1].content, ToolCallContent):
                made += made_by.write(log, ChatMessage(role="tool", content="r"), made[-1].seq)
        return made

    entries = anyio.run(main)
    read = [one for one in made_by.history(entries) if one["role"] == "assistant"]
    fields = ("_thought", "_action", "_args", "_code", "_task_successful")
    for msg, found in zip(steps, read, strict=True):
        expected = made_by.pydantic_to_dict(msg)
        assert {key: found.get(key) or None for key in fields} == {key: expected.get(key) or None for key in fields}
    assert history_violations(json.loads(json.dumps(made_by.history(entries)))) == []
    for entry in entries:
        if entry.kind in (Kind.Thought, Kind.ToolCall, Kind.Assistant):
            assert entries[[one.seq for one in entries].index(entry.causes[0])].kind is Kind.ChatCompletion  # type: ignore[arg-type]


def test_arguments_that_are_no_object_are_kept_as_they_were() -> None:
    async def main() -> None:
        store = MemoryStore()
        log = Log(Journal(store, await store.lease("r"), lambda: AT), 1, ())
        made_by = ReActHistoryFormatter()
        call = made_by.write(log, ChatMessage(role="assistant", action="look", args="[1"))[-1].content
        assert isinstance(call, ToolCallContent) and call.status == "error" and call.tool_args == {}
        assert call.meta == {"raw_args": "[1", "error": "The arguments of 'look' are not a JSON object."}
        (said,) = made_by.write(log, ChatMessage(role="assistant", content="hm"))
        assert isinstance(said.content, ChatCompletionContent) and said.content.output == "hm"
        (told,) = made_by.write(log, ChatMessage(role="user", content="see", files=[Part(type="file", blob="b"), "f"]))
        assert isinstance(told.content, UserContent) and told.content.parts is not None and len(told.content.parts) == 2
        (system,) = made_by.write(log, ChatMessage(role="system", content="s"))
        assert system.content == SystemContent(value="s")

    anyio.run(main)


# pages


def test_the_example_overrides_three_hooks_in_under_thirty_lines() -> None:
    tree = ast.parse((ROOT / "examples/history_formatter.py").read_text(encoding="utf-8"))
    (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    assert sum(isinstance(node, ast.FunctionDef) for node in made.body) == 3
    assert (made.end_lineno or 0) - made.lineno < 30
