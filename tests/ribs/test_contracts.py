"""Gesta's own models, formatters and importers keep the contracts that are asked of anybody's."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import FULL
from tests.laws.dialects import MODELS, Said, Spoken
from tests.ribs import (
    test_import_activegraph,
    test_import_agentdojo,
    test_import_inspect,
    test_import_langfuse,
    test_import_mini_swe_agent,
    test_import_swe_agent,
    test_import_tau2_voice,
    test_import_who_and_when,
)

import gesta
from gesta.compat.kodeagent.codeact import CodeActHistoryFormatter
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.decide.approval import Approver, Asked, SignedApprovals, sign
from gesta.formatters.codeact_text import CodeActText
from gesta.formatters.json_text import JsonText
from gesta.formatters.react_text import ReActText
from gesta.formatters.tool_calls import ToolCalls
from gesta.formatters.transcript import Transcript
from gesta.importers.file import import_file
from gesta.importers.format import Format
from gesta.importers.known import formats
from gesta.importers.own import OWN
from gesta.kinds import ApprovalContent
from gesta.model.request import Model, Piece, ReplyCall
from gesta.models.hosted import hosted
from gesta.prompt import Formatter
from gesta.testing import ApproverContract, FormatterContract, ImporterContract, ModelContract

pytestmark = pytest.mark.sample(2, over="parent")

SAID = (
    Said(text="It is here, naïvely: 😀."),
    Said(text="I look.", thought="Where may it be?", calls=(ReplyCall("look", '{"where": "😀"}', "call_1"),)),
    Said(calls=(ReplyCall("look", "{}", "a"), ReplyCall("look", '{"where": null}', "b")), thought="Twice."),
)


class TestScripted(ModelContract):
    def make_model(self) -> Model:
        return gesta.scripted(
            gesta.reply("Hello.", thought="Greet."), ["Two.", gesta.call("look", where="here"), gesta.call("look")]
        )


class TestFunction(ModelContract):
    def make_model(self) -> Model:
        return gesta.function(lambda messages, _header: f"You said {messages[-1]['content']!r}.")


@pytest.mark.sample(2, over="parent")
class TestHosted(ModelContract):
    """Every dialect, with replies of its provider, streamed and whole."""

    @pytest.fixture(params=MODELS, ids=[f"{at}-{one.name}" for at, one in enumerate(MODELS)], autouse=True)
    def speak(self, request: pytest.FixtureRequest) -> None:
        self.spoken: Spoken = request.param

    def make_model(self) -> Model:
        model = hosted(self.spoken.name, base_url="http://localhost:9/v1", key="k" * 20)
        return replace_dialect(model, self.spoken.dialect)

    def replies(self) -> Sequence[Sequence[Piece]]:
        wires = [self.spoken.wire(said, number) for number, said in enumerate(SAID)]
        return [*(wire.events for wire in wires), *([wire.whole] for wire in wires)]


def replace_dialect(model: Any, dialect: Any) -> Any:
    return type(model)(dialect, model.provider, key="k" * 20)


class TestToolCalls(FormatterContract):
    def make_formatter(self) -> Formatter[Any]:
        return ToolCalls()


class TestTranscript(FormatterContract):
    def make_formatter(self) -> Formatter[Any]:
        return Transcript()


class TestReActText(FormatterContract):
    def make_formatter(self) -> Formatter[Any]:
        return ReActText()


class TestCodeActText(FormatterContract):
    def make_formatter(self) -> Formatter[Any]:
        return CodeActText()


class TestJsonText(FormatterContract):
    def make_formatter(self) -> Formatter[Any]:
        return JsonText()


class TestReActHistory(FormatterContract):
    def make_formatter(self) -> Formatter[Any]:
        return ReActHistoryFormatter()


class TestCodeActHistory(FormatterContract):
    def make_formatter(self) -> Formatter[Any]:
        return CodeActHistoryFormatter()


TALK = [
    {"role": "user", "content": "Is it dry?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 7}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "dry"},
    {"role": "assistant", "content": "Yes, dry."},
]
ASKED = {"model": "m-1", "messages": TALK[:1], "tools": []}
ANSWERED = {"choices": [{"message": TALK[3], "finish_reason": "stop"}], "model": "m-1"}
SAMPLES: dict[str, list[Any]] = {
    "tau-bench": [[{"task_id": 7, "trial": 0, "reward": 1.0, "traj": TALK}]],
    "tau2-bench": [{"info": {"domain": "retail"}, "simulations": [{"id": "c0", "messages": TALK}]}],
    "tau2-voice": [test_import_tau2_voice.CALL],
    "langfuse": [test_import_langfuse.SMALL],
    "activegraph": test_import_activegraph.SIMULATION,
    "tau-bench-few-shot": [{"messages_display": "user: Is it dry?\nassistant: Yes, dry."}],
    "who-and-when": [test_import_who_and_when.GROUP, test_import_who_and_when.ORCHESTRATED],
    "agentdojo": [test_import_agentdojo.RUN],
    "mini-swe-agent": [test_import_mini_swe_agent.SMALL],
    "swe-agent": [test_import_swe_agent.TYPED, test_import_swe_agent.CALLED],
    "inspect": [test_import_inspect.DOCUMENT],
    "swe-agent-interactions": [
        {"timestamp": "2026-01-01T10:00:00Z", "type": "request", "request_params": ASKED},
        {"timestamp": "2026-01-01T10:00:01Z", "type": "response", "response": ANSWERED},
    ],
    "agent-catalog": [
        {"identifier": "1", "span": {"session": "s", "name": ["app"]}, "content": {"kind": "user", "value": "Hi."}}
        | {"timestamp": "2026-01-01T10:00:00Z", "catalog_version": {"identifier": "v"}},
        {"identifier": "2", "span": {"session": "s", "name": ["app"]}, "content": {"kind": "assistant", "value": "Hi."}}
        | {"timestamp": "2026-01-01T10:00:01Z", "catalog_version": {"identifier": "v"}, "annotations": {"a": 1}},
    ],
    "openai-chat": [{"messages": TALK, "tools": []}],
}
"""Of each format, the documents of a file, one a line."""


UNKNOWN: dict[str, list[str]] = {
    "tau-bench": ["0.0", "0.0.traj.0", "0.0.traj.1.tool_calls.0", "0.0.traj.1.tool_calls.0.function"],
    "tau2-bench": ["0", "0.simulations.0", "0.simulations.0.messages.0", "0.simulations.0.messages.1.tool_calls.0"],
    "tau2-voice": ["0", "0.ticks.0"],
    "langfuse": ["0", "0.trace", "0.observations.0"],
    "activegraph": ["0"],
    "tau-bench-few-shot": ["0"],
    "who-and-when": ["0", "0.history.0", "1", "1.history.0"],
    "agentdojo": ["0", "0.messages.0", "0.messages.2.tool_calls.0"],
    "mini-swe-agent": ["0", "0.messages.0", "0.messages.2.extra"],
    "swe-agent": ["0", "0.history.0", "0.trajectory.0"],
    "inspect": ["0", "0.samples.0", "0.samples.0.messages.0"],
    "swe-agent-interactions": ["0", "0.request_params.messages.0", "1"],
    "agent-catalog": ["0", "0.content"],
    "openai-chat": ["0", "0.messages.0", "0.messages.1.tool_calls.0", "0.messages.1.tool_calls.0.function"],
}
"""Objects of the samples by their paths, each of which may get a member that its format does not have."""


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "where"), [(name, where) for name in UNKNOWN for where in UNKNOWN[name]])
async def test_a_member_that_no_format_has_is_counted_and_kept(name: str, where: str, tmp_path: Path) -> None:
    documents = json.loads(json.dumps(SAMPLES[name]))
    place: Any = documents
    for step in where.split("."):
        place = place[int(step) if isinstance(place, list) else step]
    place["made_up"] = "Nobody knows this."
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for path, every in zip(files, (SAMPLES[name], documents), strict=True):
        path.write_text("\n".join(map(json.dumps, every)))
    async with gesta.open(":memory:") as record:
        before, after = [await import_file(record, path, name) for path in files]
        found = await record.store.sql("SELECT content, annotations FROM entries")
    assert after.oddities["unknown-member"] > before.oddities.get("unknown-member", 0)
    assert "Nobody knows this." in str(found.rows)


def test_each_format_has_a_place_for_a_member_that_it_does_not_have() -> None:
    assert UNKNOWN.keys() == SAMPLES.keys() == OWN.keys() - {"gesta"}


@pytest.mark.timeout(60)
class TestImporters(ImporterContract):
    changed = ImporterContract.changed if FULL else 10

    @pytest.fixture(params=SAMPLES, autouse=True)
    def choose(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def formats(self) -> Sequence[Format]:
        return [one for one in formats().formats if one.name == self.name]

    def samples(self) -> Mapping[str, bytes]:
        return {f"{self.name}.jsonl": "\n".join(map(json.dumps, SAMPLES[self.name])).encode()}

    def test_a_model_can_read_what_was_said(self) -> None:
        if self.name != "tau2-voice":  # its ticks say who spoke, and not what
            super().test_a_model_can_read_what_was_said()


def test_each_importer_keeps_the_contract():
    assert {*SAMPLES, "gesta"} == set(OWN)


class TestSignedApprovals(ApproverContract):
    def make_approver(self) -> Approver:
        return SignedApprovals({"ada": b"a" * 32, "eve": b"e" * 32})

    def sign(self, approval: ApprovalContent, asked: Asked) -> ApprovalContent:
        return sign(approval, asked, b"a" * 32)
