"""The same random programs with Langroid and with `gesta.compat.langroid`: the same results, but for a list.

Skipped without langroid; `.ci/originals langroid` runs it. What may differ is decided by the input, so a difference that
no class foresees fails, and so does a class that never occurs. Its tokenizer, which it downloads when it is imported, is
replaced by one of bytes.
"""

import functools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

import gesta.compat.langroid as ours

tiktoken = pytest.importorskip("tiktoken")
pytestmark = pytest.mark.filterwarnings("ignore")


def of_bytes(*_args: Any, **_fields: Any) -> Any:
    ranks = {bytes([each]): each for each in range(256)}
    return tiktoken.Encoding("bytes", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 256})


tiktoken.get_encoding = tiktoken.encoding_for_model = of_bytes
theirs = pytest.importorskip("langroid")

SQUARE, DONE_TOOL = '{"request": "square", "num": 3}', '{"request": "done_tool", "content": "7"}'
CALLS = {
    SQUARE: "",
    f"I use it: {SQUARE}": "",
    f"```json\n{SQUARE}\n```": "",
    "{'request': 'square', 'num': 3}": "",
    DONE_TOOL: "",
    '{"a": [1, {"b": 2}]}': "",
    f"{SQUARE} and {SQUARE}": "",
    "no tool": "",
    "": "",
    '{"request": "cube", "num": 3}': "a tool that is not there",
    '{"num": 3}': "JSON without a name",
    '{"request": "square", "num": "x"}': "wrong arguments, which are an exception there",
    '{"request": "square"}': "wrong arguments, which are an exception there",
    '{"request": "square", "num": 3, "more": 1}': "an argument that the tool does not have",
}
"""Texts of a model, and why they may be read otherwise here."""
ENDS = {
    "DONE 5": "",
    "The answer is 5. DONE": "",
    DONE_TOOL: "",
    "DONE: 5": "the colon after DONE",
    "5": "a plain answer",
    "ABANDONED": "DONE inside a word",
    "I am not DONE yet": "DONE inside a text",
}
"""Texts with which a model ends a task, and why the result may be another here."""
TYPES: list[Any] = [str, int, float, bool, list[int], list[str], dict[str, int]]


def tools(langroid: Any, given: Any) -> list[Any]:
    class Square(langroid.ToolMessage):
        request: str = "square"
        purpose: str = "To find the square of a <num>."
        num: int

        def handle(self) -> Any:
            return given(self.num)

    return [Square, langroid.agent.tools.orchestration.DoneTool]


def agent(langroid: Any, says: Callable[[str], Any], given: Any = lambda num: str(num**2)) -> Any:
    mock = langroid.language_models.mock_lm.MockLMConfig(response_fn=says)
    made = langroid.ChatAgent(langroid.ChatAgentConfig(name="calc", llm=mock))
    made.enable_message(tools(langroid, given))
    return made


@functools.cache
def silent(langroid: Any) -> Any:
    return agent(langroid, lambda _: "")


def read(langroid: Any, text: str) -> Any:
    """The tools in a text of a model."""
    made = silent(langroid)
    try:
        found = made.get_tool_messages(made.create_llm_response(text))
    except ValueError:
        return "wrong arguments"
    return [json.loads(each.to_json()) for each in found]


def ended(langroid: Any, text: str) -> Any:
    """The result of a task whose model says a text."""
    result = langroid.Task(agent(langroid, lambda _: text), interactive=False).run("go")
    return None if result is None else result.content


def value(langroid: Any, content: str, any_: Any, type_: Any) -> Any:
    """What a document gives for a type."""
    made = silent(langroid)
    return repr(made.from_ChatDocument(made.create_agent_response(content=content, content_any=any_), type_))


def test_texts_of_a_model_hold_the_same_tools() -> None:
    dice, differ = random.Random(14), set[str]()
    for _ in range(300):
        parts = dice.sample(list(CALLS), dice.randint(1, 3))
        text, why = dice.choice(["\n", " ", "\n\n"]).join(parts), {CALLS[each] for each in parts} - {""}
        here, there = read(ours, text), read(theirs, text)
        assert here == there or why, (text, here, there)
        differ |= why if here != there else set()
    assert differ == {*CALLS.values()} - {""}


@pytest.mark.parametrize("text", ENDS)
def test_a_task_ends_with_the_same_result(text: str) -> None:
    assert (ended(ours, text) == ended(theirs, text)) == (not ENDS[text])


def test_documents_give_the_same_values() -> None:
    dice, differ = random.Random(14), set[str]()
    for _ in range(300):
        content = dice.choice(["", "5", "-2.5", "yes", "true", "no", "five", "[1]", '{"a": 1}'])
        any_, type_ = dice.choice([None, 7, "x", [1, 2], ["a"], {"a": 1}, 2.5]), dice.choice(TYPES)
        here, there = value(ours, content, any_, type_), value(theirs, content, any_, type_)
        why = ""
        if type_ is str and content and isinstance(any_, str):
            why = "a value comes before the text"
        elif type_ is str and not content:
            why = "an empty text"
        elif type_ is bool:
            why = "a text that is not a truth value"
        elif content.startswith(("[", "{")):
            why = "a text that is JSON"
        assert here == there or why, (content, any_, type_, here, there)
        differ |= {why} if here != there else set()
    assert differ == {
        "a value comes before the text",
        "an empty text",
        "a text that is not a truth value",
        "a text that is JSON",
    }
