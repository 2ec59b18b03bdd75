"""agent-catalog's spans on a record: a program that is written for them runs with its import changed."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest

import gesta
from gesta.address import drive
from gesta.compat import agent_catalog as agentc
from gesta.errors import AgentError


@pytest.fixture
def catalog() -> agentc.Catalog:
    return agentc.Catalog(":memory:")


def kinds(catalog: agentc.Catalog, run: int = 0) -> list[str]:
    row = drive(catalog.record.store.runs())[run]
    return [str(entry.kind) for entry in drive(catalog.record.read(row.run))]


def told(span: agentc.Span) -> list[tuple[list[str], str, Any]]:
    return [(log.span.name, str(log.content.kind), log.annotations) for log in span.logs()]


def test_a_span_that_is_not_entered_shows_its_logs_alone(catalog: agentc.Catalog) -> None:
    root = catalog.Span(name="app", session="s", version=1)
    root.log(agentc.SystemContent(value="Hello"), channel="chat")
    inner = root.new("agent", version=2, score=3)
    inner["key"] = {"text": "Hello"}
    inner.log({"kind": "user", "value": "hi"}, score=4)
    assert told(root) == [
        (["app"], "system", {"version": 1, "channel": "chat"}),
        (["app", "agent"], "key-value", {"version": 2, "score": 3}),
        (["app", "agent"], "user", {"version": 2, "score": 4}),
    ]
    assert told(inner) == told(root)[1:]
    assert root.identifier == inner.parent.identifier == root.logs()[0].span if inner.parent else None
    assert next(iter(inner)).content == agentc.KeyValueContent(key="key", value={"text": "Hello"})
    del root, inner
    gc.collect()
    assert kinds(catalog) == ["begin", "system", "begin", "key-value", "user", "end", "end"], "all spans are ended"
    with catalog.Span(name="app", session="s"):
        pass


def test_an_entered_span_has_its_state_at_both_ends_and_its_end_also_after_an_error(catalog: agentc.Catalog) -> None:
    state = {"asked": 0}
    with catalog.Span(name="app", session="s", state=state) as span:
        state["asked"] += 1
        with pytest.raises(ValueError, match="no"), span.new("inner"):
            raise ValueError("no")
    first, _, failed, last = span.logs()
    assert [log.content.model_dump()["state"] for log in (first, last)] == [{"asked": 0}, {"asked": 1}]
    assert failed.content.model_dump()["extra"]["error"] == {"type": "ValueError", "message": "no"}
    assert span.new("more").new("most").state is None
    assert span.session == "s"


def test_a_child_without_a_state_shows_that_of_the_span_around_it_but_not_that_of_a_root(
    catalog: agentc.Catalog,
) -> None:
    with catalog.Span(name="app", state=1) as root, root.new("agent", state=2) as agent:
        with agent.new("task"):
            pass
        with agent.new("other", state=3):
            pass
        with root.new("last"):
            pass
    begun = [(log.span.name[-1], log.content.model_dump()["state"]) for log in root if log.content.kind == "begin"]
    assert begun == [("app", 1), ("agent", 2), ("task", 2), ("other", 3), ("last", None)]


def test_kinds_in_a_blacklist_are_skipped_inside_it_too(catalog: agentc.Catalog) -> None:
    root = catalog.Span(name="app", blacklist={"key-value"})
    inner = root.new("inner", blacklist={agentc.Kind.System})
    root["metric"] = inner["metric"] = 2
    inner.log(agentc.SystemContent(value="not kept"))
    inner.log(agentc.UserContent(value="kept"))
    assert [kind for _, kind, _ in told(root)] == ["user"]


def test_two_spans_of_one_session_write_one_run_and_another_process_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / "app.gesta"
    catalog = agentc.Catalog(path)
    one, two = (catalog.Span(name="app", session="s") for _ in range(2))
    one["a"] = 1
    two["b"] = 2
    with two:
        two["c"] = 3
    assert [kind for _, kind, _ in told(two)] == ["key-value", "begin", "key-value", "end"]
    del one, two
    gc.collect()
    with gesta.open_sync(str(path)) as record, record.span("app", session="s") as span:
        span["d"] = 4
        assert [
            json.loads(str(getattr(e.content, "value", 0))) for e in record.read(span.run) if e.kind == "key-value"
        ] == [*(1, 2, 3, 4)]


def test_what_is_no_content_is_refused_in_words(catalog: agentc.Catalog) -> None:
    span = catalog.Span(name="app")
    with pytest.raises(agentc.BadContent, match="found kind 'usr', expected one of system"):
        span.log({"kind": "usr"})
    with pytest.raises(AgentError, match="which the run itself writes"):
        span.log(gesta.kinds.SignalContent(name="cancel", by="me"))
    assert span.logs() == []


def test_tools_and_prompts_are_found_by_name_and_by_words(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(
        'import gesta\n\n@gesta.tool(effect="pure")\ndef weather(city: str) -> str:\n    "Says the weather."\n    return "dry"\n'
    )
    (tmp_path / "desk.prompt.md").write_text("+++\nannotations = {team = 'desk'}\n+++\nBe kind.\n")
    catalog = agentc.Catalog(":memory:", folder=tmp_path)
    assert catalog.find("tool", name="weather")("Rome") == "dry"
    assert [tool.name for tool in catalog.find("tools", "weather")] == ["weather"]
    assert [item.content for item in catalog.find("prompt", annotations={"team": "desk"}, limit=None)] == ["Be kind."]
    span = catalog.Span(name="app")
    span["a"] = 1
    version = {"identifier": catalog.version.identifier, "is_dirty": False, "version_system": "raw"}
    assert version.items() <= span.logs()[0].catalog_version.items()
    (row,) = drive(catalog.record.store.runs())
    begun: Any = drive(catalog.record.read(row.run))[0].content
    assert begun.agent.catalog == str(catalog.version)
