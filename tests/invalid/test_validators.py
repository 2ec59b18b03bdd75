"""The validators of Responses, Messages and `generateContent`: what is broken is refused for its own reason alone,
what is valid and what was really sent is accepted, and nothing that JSON can hold makes them fail.

A file says in `rule` which rule it breaks, or what it shows, and in `found` how each of its violations begins.
"""

import copy
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import sampled
from tests.validators import anthropic_messages, gemini, responses

pytestmark = pytest.mark.sample(3, over="parent")

HERE = Path(__file__).parent
VALIDATE: dict[str, Callable[..., list[str]]] = {
    "responses": responses.violations,
    "anthropic_messages": anthropic_messages.violations,
    "gemini": gemini.violations,
}
CASES = {
    f"{api}/{path.stem}": json.loads(path.read_bytes())
    for api in VALIDATE
    for path in sorted([*(HERE / api).glob("*.json"), *(HERE / api / "valid").glob("*.json")])
}
BROKEN = [name for name, case in CASES.items() if "found" in case]
VALID = [name for name, case in CASES.items() if "found" not in case]
ELSEWHERE = ("responses/earlier_response", "responses/references")  # their calls stand in what the API stored
CLASSES = {  # violation in recorded traffic with a 2xx reply -> why the validator is stricter
    "messages[0].role: the first message must be of the user": "Anthropic takes it today; older models, Bedrock do not",
    "contents[0].parts[0].text: must not be empty": "the Gemini API takes it, Vertex AI does not",
}
CALLS = ("tool_use", "tool_result", "functionCall", "functionResponse", "function_call", "function_response")

# What takes no file of its own: one value of a valid request, put wrong.
SHAPES = [
    ("responses/text_only", "metadata", "x", "metadata: must be an object"),
    ("responses/text_only", "metadata", {"a": 1}, "metadata: must be 16 pairs at most"),
    ("responses/text_only", "metadata", {"a" * 65: "x"}, "metadata: must be 16 pairs at most"),
    ("responses/text_only", "metadata", dict.fromkeys("abcdefghijklmnopq", "x"), "metadata: must be 16 pairs at most"),
    ("responses/text_only", "include", "x", "include: must be an array"),
    ("responses/text_only", "stream", "yes", "stream: must be a boolean"),
    ("responses/text_only", "temperature", 2.5, "temperature: must be a number from 0 to 2"),
    ("responses/text_only", "text", "x", "text: must be an object"),
    ("responses/text_only", "text.format", {"type": "xml"}, "text.format.type: must be one of"),
    ("responses/text_only", "tools", {}, "tools: must be an array"),
    ("responses/one_call", "tools.0.strict", "yes", "tools[0].strict: must be a boolean"),
    ("responses/one_call", "tools.0.description", 1, "tools[0].description: must be a string"),
    ("responses/one_call", "tools.0.function", {}, "tools[0].function: unknown parameter"),
    ("responses/format_strict", "text.format.strict", "yes", "text.format.strict: must be a boolean"),
    ("responses/format_strict", "tool_choice.tools.0.name", "x", "tool_choice.tools[0]: not among the tools"),
    ("responses/custom_tool", "input.1.input", 1, "input[1].input: must be a string"),
    ("responses/reasoning_and_call", "input.1.summary", "x", "input[1].summary: must be an array"),
    ("responses/reasoning_and_call", "input.1.encrypted_content", 1, "input[1].encrypted_content: must be a string"),
    ("responses/reasoning_and_call", "input.6.phase", "final", "input[6].phase: must be one of"),
    ("responses/parts", "input.0.content.1.detail", "max", "input[0].content[1].detail: must be one of"),
    ("anthropic_messages/one_message", "stream", "yes", "stream: must be a boolean"),
    ("anthropic_messages/one_message", "system", {}, "system: must be a string or an array of text blocks"),
    ("anthropic_messages/one_message", "messages.0", "Hi", "messages[0].role: must be one of"),
    ("anthropic_messages/one_message", "messages.0.content", " ", "messages[0].content: must not be blank"),
    ("anthropic_messages/one_message", "thinking", {"type": "on"}, "thinking.type: must be one of"),
    ("anthropic_messages/one_message", "output_config", "x", "output_config: must be an object"),
    ("anthropic_messages/one_message", "output_config.format", {"type": "text"}, "output_config.format.type: must be"),
    ("anthropic_messages/one_message", "cache_control", {"type": "forever"}, "cache_control.type: must be one of"),
    ("anthropic_messages/one_call", "tools", {}, "tools: must be an array"),
    ("anthropic_messages/one_call", "tools.0.input_schema.properties", [], "tools[0].input_schema.properties: must be"),
    ("anthropic_messages/one_call", "tools.0.input_schema.required", [1], "tools[0].input_schema.required: must be"),
    ("anthropic_messages/one_call", "tool_choice.tools", [], "tool_choice.tools: unknown parameter"),
    ("anthropic_messages/one_call", "messages.1.content.0.text", 1, "messages[1].content[0].text: must be a string"),
    ("anthropic_messages/thinking", "messages.3.content.0.thinking", 1, "messages[3].content[0].thinking: must be a"),
    ("anthropic_messages/thinking", "messages.3.content.1.data", " ", "messages[3].content[1].data: must not be blank"),
    (
        "anthropic_messages/media",
        "messages.0.content.0.source.type",
        "x",
        "messages[0].content[0].source.type: must be",
    ),
    (
        "anthropic_messages/media",
        "messages.0.content.1.source.url",
        1,
        "messages[0].content[1].source: source is malformed",
    ),
    ("gemini/one_call", "generationConfig", "x", "generationConfig: must be an object"),
    ("gemini/one_call", "generationConfig.topP", 2, "generationConfig.topP: must be a number from 0 to 1"),
    (
        "gemini/one_call",
        "generationConfig.maxOutputTokens",
        "9",
        "generationConfig.maxOutputTokens: must be an integer",
    ),
    ("gemini/one_call", "toolConfig", "x", "toolConfig: must be an object"),
    ("gemini/one_call", "toolConfig.functionCallingConfig", "x", "toolConfig.functionCallingConfig: must be an object"),
    ("gemini/one_call", "contents.0", "Hi", "contents[0]: must be an object"),
    ("gemini/one_call", "contents.0.name", "Ada", "contents[0].name: unknown parameter"),
    (
        "gemini/one_call",
        "contents.1.parts.1.functionCall.id",
        1,
        "contents[1].parts[1].functionCall.id: must be a string",
    ),
    ("gemini/one_call", "tools.0", "x", "tools[0]: must be an object"),
    (
        "gemini/one_call",
        "tools.0.functionDeclarations.0.description",
        1,
        "tools[0].functionDeclarations[0].description: ",
    ),
    ("gemini/media", "contents.0.parts.0.inlineData", "x", "contents[0].parts[0].inlineData: must be an object"),
    (
        "gemini/media",
        "contents.2.parts.0.functionResponse.parts.0",
        {},
        "contents[2].parts[0].functionResponse.parts[0]: must",
    ),
]


def violations(name: str, body: Any) -> list[str]:
    api, case = name.partition("/")[0], CASES[name]
    return VALIDATE[api](body, case["model"]) if "model" in case else VALIDATE[api](body)


@pytest.mark.parametrize("api", VALIDATE)
def test_there_are_enough_of_each(api) -> None:
    assert sum(name.startswith(api) for name in BROKEN) >= 14
    assert sum(name.startswith(api) for name in VALID) >= 5
    folders = {
        path.parent.name for path in (HERE / api).rglob("*.json") if "found" not in json.loads(path.read_bytes())
    }
    assert folders == {"valid"}
    rules = [case["rule"] for name, case in CASES.items() if name.startswith(api)]
    assert len({*rules}) == len(rules)
    assert all(rule.endswith(".") for rule in rules)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_request_is_refused_for_its_reason(name) -> None:
    found, expected = violations(name, CASES[name]["body"]), CASES[name]["found"]
    assert expected
    assert len(found) == len(expected), found
    for violation, reason in zip(found, expected, strict=True):
        assert violation.startswith(reason)


@pytest.mark.parametrize("name", VALID)
def test_a_valid_request_is_accepted(name) -> None:
    assert violations(name, CASES[name]["body"]) == []


@pytest.mark.parametrize(("name", "place", "value", "reason"), SHAPES)
def test_a_wrong_shape_is_named(name, place, value, reason) -> None:
    body = copy.deepcopy(CASES[name]["body"])
    *path, last = (int(key) if key.isdecimal() else key for key in place.split("."))
    inner = body
    for key in path:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
    inner[last] = value
    found = violations(name, body)
    assert found
    assert found[0].startswith(reason)


@pytest.mark.parametrize("name", [name for name in VALID if name not in ELSEWHERE])
def test_no_call_and_no_answer_can_be_taken_away(name) -> None:
    body = CASES[name]["body"]
    for path in paths(body):
        if path and isinstance(path[-1], int) and is_call(at(body, path)):
            fewer = copy.deepcopy(body)
            del at(fewer, path[:-1])[path[-1]]
            assert violations(name, fewer), path


# ------------------------------------------------------------------------------------------------------- whatever JSON

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
WORDS = ["type", "role", "content", "parts", "id", "text", "name", "user", "assistant", "model", "object", "", "\ud800"]
ODD = VALUES | st.sampled_from(WORDS) | st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=3)


@pytest.mark.parametrize("api", VALIDATE)
@given(body=ODD)
def test_any_json_gets_an_answer(api, body) -> None:
    assert all(isinstance(each, str) for each in VALIDATE[api](body))


@given(name=st.sampled_from([name for name in CASES if CASES[name]["body"]]), where=st.integers(min_value=0), value=ODD)
def test_any_json_in_any_place_gets_an_answer(name, where, value) -> None:
    body = copy.deepcopy(CASES[name]["body"])
    places = [path for path in paths(body) if path]
    path = places[where % len(places)]
    at(body, path[:-1])[path[-1]] = value
    assert all(isinstance(each, str) for each in violations(name, body))


WRONG: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], {}, [[]], [None], {"type": None}, {"type": {}}]


@pytest.mark.sample(4)
@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_value_in_each_place_gets_an_answer(value) -> None:
    places = [(name, path) for name, case in CASES.items() for path in paths(case["body"]) if path]
    for name, path in sampled(places, 13, WRONG.index(value)):  # a place gets one value, or all
        body = copy.deepcopy(CASES[name]["body"])
        at(body, path[:-1])[path[-1]] = copy.deepcopy(value)
        assert all(isinstance(each, str) for each in violations(name, body))


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", VALID)
def test_deep_json_is_no_crash(name) -> None:
    deep = json.loads('{"type": "object", "properties": {"a": ' * 200 + "{}" + "}}" * 200)
    for path in sampled(paths(CASES[name]["body"]), 3):
        body = copy.deepcopy(CASES[name]["body"])
        if path:
            at(body, path[:-1])[path[-1]] = deep
            violations(name, body)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def is_call(value: Any) -> bool:
    """A call, or an answer, of a tool that runs at the client: an item, a block or a part."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type", "")
    return kind in CALLS or kind.endswith(("_call", "_call_output")) or any(key in value for key in CALLS)


# ------------------------------------------------------------------------------------------------------- real traffic


class Sent(NamedTuple):
    """A request of the corpus that got a 2xx reply."""

    api: str
    model: str  # of the URL
    where: str
    body: Any


def sent(corpus: Path) -> Iterator[Sent]:
    yaml = pytest.importorskip("yaml", reason="corpus absent: cassettes need PyYAML, which comes with gesta[test]")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for archive in sorted((corpus / "cassettes").glob("*/*.tar.gz")):
        with tarfile.open(archive) as files:
            for member in files:
                file = files.extractfile(member) if member.name.endswith(".yaml") else None
                cassette = yaml.load(file.read(), Loader=loader) if file else {}
                for index, exchange in enumerate(cassette.get("interactions", [])):
                    yield from request(exchange, f"{member.name}[{index}]")


def request(exchange: dict[str, Any], where: str) -> Iterator[Sent]:
    if "request" not in exchange or exchange["response"]["status"]["code"] // 100 != 2:
        return
    path = urlsplit(exchange["request"]["uri"]).path
    body = exchange["request"].get("parsed_body")
    if body is None:
        text = exchange["request"].get("body")
        text = text.get("string") if isinstance(text, dict) else text
        try:
            body = json.loads(text or "null")
        except ValueError:
            return
    if path.endswith("/responses") and body is not None:
        yield Sent("responses", "", where, body)
    elif path == "/v1/messages":
        yield Sent("anthropic_messages", "", where, body)
    elif "enerateContent" in path:
        yield Sent("gemini", path.rpartition("/")[2].partition(":")[0], where, body)


@pytest.mark.slow
def test_what_was_really_sent_is_valid(corpus) -> None:
    """Traffic of an API with a 2xx reply; each difference has a class, and they are less than 1 % in all."""
    counts, classes, unknown = Counter[str](), Counter[str](), list[str]()
    for api, model, where, body in sent(corpus):
        counts[api] += 1
        for violation in VALIDATE[api](body, model) if model else VALIDATE[api](body):
            classes[violation] += violation in CLASSES
            unknown += [] if violation in CLASSES else [f"{where}: {violation}"]
    assert not unknown, "\n".join(unknown)
    assert min(counts[api] for api in VALIDATE) >= 100, counts
    assert set(classes) == set(CLASSES), "a class that nothing is in any more"
    assert classes.total() <= counts.total() / 100
