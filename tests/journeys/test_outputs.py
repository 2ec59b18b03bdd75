"""An answer has the type that was asked for, or the turn says why not; what does not fit goes back to the model."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

import gesta
from gesta.address import open_record
from gesta.agent import Answer
from gesta.errors import BadTool, OtherType
from gesta.function_tool.output import Output
from gesta.kinds import (
    ChatCompletionContent,
    Content,
    RequestHeaderContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
)
from gesta.model.request import Reply, ReplyCall
from gesta.views.across import explain_run


@dataclass
class Place:
    city: str
    degrees: int


class Town(msgspec.Struct):
    city: str


class Form(TypedDict):
    city: str


@dataclass
class Note:
    content: str


class Model(pydantic.BaseModel):
    city: str
    inner: list[Place] = []


By = Literal["native", "tool", "prompt"]
REACT = "react-text"
ROME = '{"city": "Rome", "degrees": 21}'


async def played(agent: gesta.Agent[Any]) -> tuple[gesta.Outcome[Any], list[Content]]:
    async with open_record(":memory:") as record:
        outcome = await record.run(agent, "Where?")
        return outcome, [entry.content for entry in await record.read(outcome.run)]


def desk(*script: Any, output: Any = Place, **more: Any) -> gesta.Agent[Any]:
    return gesta.Agent("desk", model=gesta.scripted(*script), output=output, **more)


@pytest.mark.parametrize("by", ["native", "prompt"])
async def test_the_answer_is_a_value_of_the_type(by: By) -> None:
    outcome, contents = await played(desk(ROME, output=Output(Place, by=by)))
    assert outcome.value == Place("Rome", 21)
    assert outcome.answer == ROME
    (header,) = [each for each in contents if isinstance(each, RequestHeaderContent)]
    instructions = (header.meta or {}).get("instructions", "")
    assert (header.output is not None, '"degrees"' in instructions) == (by == "native", by == "prompt")


async def test_a_tool_may_take_the_answer_and_ends_the_turn_with_it() -> None:
    outcome, contents = await played(
        desk(gesta.call("answer", city="Rome", degrees=21), output=Output(Place, by="tool"))
    )
    assert outcome.value == Place("Rome", 21)
    (header,) = [each for each in contents if isinstance(each, RequestHeaderContent)]
    assert [tool["name"] for tool in header.tools or ()] == ["answer"]
    assert not any(isinstance(each, ToolCallContent) for each in contents), "no tool was called: it is the answer"


async def test_an_answer_that_was_cut_off_before_its_members_came_is_not_one_of_defaults_alone() -> None:
    @dataclass
    class Verdict:
        refund: bool = True

    cut = Reply(calls=(ReplyCall("answer", "{}"),), finish_reason="length")
    outcome, contents = await played(desk(cut, gesta.call("answer", refund=False), output=Output(Verdict, by="tool")))
    assert outcome.value == Verdict(refund=False)
    (told,) = [each.tool_result for each in contents if isinstance(each, ToolResultContent)]
    assert told == "The reply was cut off before the arguments of 'answer' came. Make the call again."


async def test_the_tool_of_the_answer_is_called_alone() -> None:
    @gesta.tool(effect="pure")
    def look() -> str:
        return "seen"

    both = gesta.reply(calls=[gesta.call("look"), gesta.call("answer", city="Rome", degrees=1)])
    last = gesta.call("answer", city="Rome", degrees=2)
    outcome, contents = await played(desk(both, last, output=Output(Place, by="tool"), tools=[look]))
    assert outcome.value == Place("Rome", 2)
    calls = [each for each in contents if isinstance(each, ToolCallContent)]
    assert [(call.tool_name, call.status) for call in calls] == [("look", "success"), ("answer", "error")]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("Rome!", "The answer is not JSON"),
        ('{"city": "Rome", "degrees": NaN}', "The answer is not JSON (NaN is not JSON)"),
        ('{"city": "Rome"}', "degrees"),
        ('{"city": "Rome", "degrees": "hot"}', "Expected `int`, got `str` - at `$.degrees`"),
        ("[1]", "Expected `object`, got `array`"),
    ],
)
async def test_what_does_not_fit_goes_back_and_is_on_record(wrong: str, told: str) -> None:
    outcome, contents = await played(desk(wrong, f"```json\n{ROME}\n```"))
    assert outcome.value == Place("Rome", 21)
    (said,) = [each for each in contents if isinstance(each, SystemContent)]
    assert told in said.value
    assert next(each.output for each in contents if isinstance(each, ChatCompletionContent)) == wrong


async def test_after_so_many_corrections_the_turn_fails_and_says_why() -> None:
    agent = desk("a", "b", "c", "d", policy=gesta.Policy(retry=gesta.Retry(corrections=2)))
    outcome, _ = await played(agent)
    assert (outcome.reason, outcome.given, outcome.requests) == ("failed", None, 3)
    assert outcome.error is not None
    assert outcome.error.type == "BadAnswer"
    assert "not JSON" in outcome.error.message
    outcome, _ = await played(desk("a", ROME, policy=gesta.Policy(retry=gesta.Retry(corrections=0))))
    assert outcome.reason == "failed"


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (int, '{"value": 3}', 3),
        (list[Town], '{"value": [{"city": "Rome"}]}', [Town("Rome")]),
        (Literal["yes", "no"], '{"value": "no"}', "no"),
        (Town, '{"city": "Rome"}', Town("Rome")),
        (Form, '{"city": "Rome"}', {"city": "Rome"}),
        (Model, '{"city": "Rome", "inner": [{"city": "Ostia", "degrees": 1}]}', None),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (int | None, '{"value": null}', None),
    ],
)
async def test_any_type_that_a_tool_takes_will_do(output: Any, text: str, value: Any) -> None:
    outcome, contents = await played(desk(text, output=output))
    assert outcome.reason == "answered", outcome.error
    assert outcome.value == (Model(city="Rome", inner=[Place("Ostia", 1)]) if output is Model else value)
    (header,) = [each for each in contents if isinstance(each, RequestHeaderContent)]
    assert header.output is not None
    assert header.output["type"] == "object", "providers want an object at the root"


@pytest.mark.parametrize("formatter", ["react-text", "codeact-text", "json-text"])
async def test_a_model_that_writes_its_calls_in_words_is_asked_in_words(formatter: str) -> None:
    answer = {"react-text": f"Thought: easy\nFinal Answer: {ROME}"}.get(formatter, ROME)
    outcome, contents = await played(desk(answer, formatter=formatter))
    assert outcome.value == Place("Rome", 21)
    (header,) = [each for each in contents if isinstance(each, RequestHeaderContent)]
    assert header.output is None


async def test_the_same_key_gives_the_same_value_again() -> None:
    async with open_record(":memory:") as record:
        for _ in range(2):
            outcome = await record.run(desk(ROME), "Where?", session="s", key="k")
            assert outcome.value == Place("Rome", 21)
        assert (await record.resume(outcome.run, desk())).value == Place("Rome", 21)


async def test_a_key_whose_answer_is_of_another_type_is_told_of_in_words() -> None:
    async with open_record(":memory:") as record:
        outcome = await record.run(desk(ROME), "Where?", session="s", key="k")
        for agent in (desk(ROME, output=int), desk(ROME, output=list[Place])):
            with pytest.raises(OtherType, match=rf"Turn {outcome.run}\.1 .* does not fit .* another key") as told:
                await record.run(agent, "Where?", session="s", key="k")
            assert "the type that it had then" in str(told.value)
            with pytest.raises(OtherType):
                await record.resume(outcome.run, agent)
        plain = await record.run(desk(ROME, output=None), "Where?", session="s", key="k")
        assert plain.value == {"city": "Rome", "degrees": 21}, "without a type it is what stands on record"
        assert (await record.run(desk(ROME), "Where?", session="s", key="k")).value == Place("Rome", 21)


@pytest.mark.parametrize("output", [{"type": "object"}, "Place", object.__init__])
def test_what_is_no_type_is_refused_in_words(output: Any) -> None:
    with pytest.raises(BadTool, match="type"):
        desk(ROME, output=output)


@pytest.mark.parametrize("output", [object.__init__, list["Nowhere"], dict[int, complex]])  # type: ignore[name-defined]  # noqa: F821
def test_a_type_that_no_model_can_be_told_is_refused_by_the_name_that_its_user_knows(output: Any) -> None:
    with pytest.raises(BadTool, match=r"^output=.* is not a type for an answer \(") as told:
        desk(ROME, output=output)
    assert "dataclass" in str(told.value)
    assert "Tool" not in str(told.value)
    assert "'value'" not in str(told.value)


class Refund(TypedDict):
    euros: int


class Voucher(TypedDict):
    points: int


def test_types_that_json_cannot_tell_apart_are_refused_with_what_to_write() -> None:
    with pytest.raises(BadTool, match=r"^output=.* is not a type for an answer .* Struct with a tag"):
        desk(ROME, output=Refund | Voucher)

    def pay(how: Refund | Voucher) -> str:
        return ""

    with pytest.raises(BadTool, match=r"^Tool 'pay': 'how' is not a type for JSON .* Struct with a tag"):
        gesta.tool(pay)


def test_two_tools_named_answer_are_refused() -> None:
    @gesta.tool
    def answer() -> str:
        return ""

    with pytest.raises(BadTool, match="two tools named 'answer'"):
        desk(ROME, output=Output(Place, by="tool"), tools=[answer])


async def heard(agent: gesta.Agent[Any]) -> tuple[gesta.Outcome[Any], list[tuple[str, str]]]:
    """What a listener is told, but for explanations; an answer that is retracted is no longer among it."""
    events: list[tuple[str, str]] = []
    async with open_record(":memory:") as record:
        outcome = await record.run(
            agent,
            "Where?",
            listener=lambda event: events.append((event.type, event.content)) if event.type != "explain" else None,
        )
    return outcome, events


def kept(events: list[tuple[str, str]]) -> str:
    """The words of an answer that were not taken back."""
    words = ""
    for kind, content in events:
        words = "" if kind == "retract" else words + content if kind == "answer" else words
    return words


@pytest.mark.parametrize("formatter", ["tool-calls", "react-text", "json-text"])
async def test_words_that_are_corrected_are_taken_back(formatter: str) -> None:
    head = "Thought: easy\nFinal Answer: " if formatter == "react-text" else ""
    outcome, events = await heard(desk(f"{head}Rome!", f"{head}{ROME}", formatter=formatter))
    assert outcome.answer == ROME
    assert kept(events) == ROME
    assert [kind for kind, _ in events].count("retract") == 1


async def test_an_answer_that_never_fits_is_taken_back_before_the_error() -> None:
    _, events = await heard(desk("a", "b", "c"))
    assert [kind for kind, _ in events] == ["answer", "retract"] * 3 + ["error", "end"]


async def test_words_beside_the_tool_of_the_answer_are_a_thought() -> None:
    reply = gesta.reply("Here it is.", calls=[gesta.call("answer", city="Rome", degrees=21)])
    outcome, events = await heard(desk(reply, output=Output(Place, by="tool")))
    assert kept(events) == outcome.answer == '{"city":"Rome","degrees":21}'
    assert [content for kind, content in events if kind == "thought"] == ["Here it is."]
    reply = gesta.reply("Here.", thought="Hm.", calls=[gesta.call("answer", city="Rome", degrees=21)])
    outcome, events = await heard(desk(reply, output=Output(Place, by="tool")))
    assert "".join(content for kind, content in events if kind == "thought").replace("\n", "") == "Hm.Here."


@pytest.mark.parametrize(
    ("output", "given", "answer", "value"),
    [
        (Place, {"city": "Rome", "degrees": 21}, ROME, Place("Rome", 21)),
        (Place, Place("Rome", 21), ROME, Place("Rome", 21)),
        (Place, ROME, ROME, Place("Rome", 21)),
        (Place, Answer("It is Rome.", {"city": "Rome", "degrees": 21}), "It is Rome.", Place("Rome", 21)),
        (int, 3, "3", 3),
        (str, "Rome", "Rome", "Rome"),
        (list[Place], [Place("Rome", 21)], f"[{ROME}]", [Place("Rome", 21)]),
        (int | None, None, "null", None),
        (str | None, None, "null", None),
        (int | None, Answer("Nobody knows.", None), "Nobody knows.", None),
    ],
)
async def test_what_a_program_gives_has_the_type_too(output: Any, given: Any, answer: str, value: Any) -> None:
    async def program(_verbs: Any, _text: str) -> Any:
        return given

    async with open_record(":memory:") as record:
        agent = gesta.Agent("desk", program=program, output=output)
        outcome = await record.run(agent, "Where?", session="s", key="k")
        assert (outcome.answer, outcome.value) == (answer, value)
        assert (await record.run(agent, "Where?", session="s", key="k")).value == value


@pytest.mark.parametrize("given", ["Rome!", {"city": "Rome"}, 3, None])
async def test_a_program_that_gives_something_else_fails_and_says_why(given: Any) -> None:
    async def program(_verbs: Any, _text: str) -> Any:
        return given

    outcome, contents = await played(gesta.Agent("desk", program=program, output=Place))
    assert outcome.reason == "failed"
    assert outcome.error is not None
    assert outcome.error.type == "BadAnswer"
    assert contents[-1].kind == "end", "the turn is over"


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Note, '{"content": "Rome"}', Note("Rome")),
        (int, '{"value": 3}', 3),
        (str, '{"value": "Rome"}', "Rome"),
        (int | None, '{"value": null}', None),
    ],
)
async def test_an_agent_as_a_tool_gives_its_value_and_its_run_can_be_asked_again(
    output: Any, text: str, value: Any
) -> None:
    child = gesta.Agent("child", model=gesta.scripted(text), output=output)
    parent = gesta.Agent("parent", model=gesta.scripted(gesta.call("child", task="?"), "done"), tools=[child.as_tool()])
    async with open_record(":memory:") as record:
        outcome = await record.run(parent, "Where?")
        assert outcome.answer == "done"
        (row,) = [row for row in await record.store.runs() if row.parent_run is not None]
        assert (await record.resume(row.run, child)).value == value


async def test_no_value_is_a_value_where_the_type_allows_it() -> None:
    async def program(_verbs: Any, _text: str) -> None:
        return None

    given = []
    for child in (
        gesta.Agent("child", model=gesta.scripted('{"value": null}'), output=Output[int | None](int | None)),
        gesta.Agent(
            "child",
            model=gesta.scripted('Final Answer: {"value": null}'),
            output=Output[int | None](int | None),
            formatter=REACT,
        ),
        gesta.Agent("child", program=program, output=Output[int | None](int | None)),
    ):
        call = gesta.call("child", task="?")
        parent = gesta.Agent("parent", model=gesta.scripted(call, "done"), tools=[child.as_tool()])

        async def asks(verbs: gesta.Verbs, _text: str, child: gesta.Agent[Any] = child) -> Any:
            said = await verbs.call(child, "?", "ask")
            return [said.value, said.text, said.ok]

        async with open_record(":memory:") as record:
            outcome = await record.run(parent, "Where?")
            results = [each.content for each in await record.read(outcome.run)]
            given += [each.tool_result for each in results if isinstance(each, ToolResultContent)]
            assert (await record.run(gesta.Agent[Any]("asks", program=asks), "?")).value == [None, "null", True]
            (row,) = [row for row in await record.store.runs() if row.parent_run == outcome.run]
            again = await record.resume(row.run, child)
            assert (again.value, again.answer, again.reason) == (None, "null", "answered")
            explained = await explain_run(record, row.run)
            assert explained.nodes[-1].text == "null"
    assert given == [None] * 3


async def test_a_program_that_returns_nothing_gives_an_empty_answer_where_no_type_is_asked_for() -> None:
    async def program(_verbs: Any, _text: str) -> None:
        return None

    outcome, _ = await played(gesta.Agent("desk", program=program))
    assert (outcome.reason, outcome.answer, outcome.value) == ("answered", "", "")
