"""A process that is killed between a hook and its entry is followed by one that asks again, and does nothing twice."""

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import FULL

import gesta
from gesta.kinds import AssistantContent, CheckContent, RequestHeaderContent, SystemContent, ToolResultContent
from gesta.testing import crash_test

FACTS: dict[str, list[Any]] = {
    "short": [
        ("call", "changed"),
        *("paid 4", "handed over to Ann"),
        "handed over to Ann",
    ],
    "whole": [
        ("message", "changed"),
        ("request", "added"),
        "Reminder 1.",
        ("call", "changed"),
        ("call", "asked"),
        ("call", "refused"),
        *("Bob is away.", "paid 4", "paid 14", "Not nine."),
        ("request", "added"),
        "Reminder 2.",
        "handed over to Ann",
        ("answer", "changed"),
        "handed over to a colleague",
    ],
}


def facts(entries: list[gesta.Entry]) -> list[Any]:
    """What is the same however often a process died; results of one reply come in any order, some by way of reconcile."""
    found: list[Any] = []
    for each in entries:
        match each.content:
            case CheckContent(point=point, verdict=verdict):
                found.append((point, verdict))
            case SystemContent(value=text) | AssistantContent(value=text):
                found.append(text)
            case ToolResultContent(tool_result=text):
                found.append(text)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["short", *(["whole"] if FULL else [])])
def test_an_agent_with_hooks_is_killed_at_every_write_point_and_ends_as_one_that_was_not(
    name: str, tmp_path: Path
) -> None:
    report = crash_test(f"{Path(__file__).with_name('checked_agent.py')}:{name}", "Pay.", folder=tmp_path)
    assert (report.wrong, report.missing, report.bought_again) == ([], [], 0)
    assert set(report.turns) == {"answered"}
    assert report.tools["pay"].max_fired == 1
    assert any("check" in point for point in report.killed_at)
    for path in tmp_path.glob("*/record.gesta"):
        with gesta.open_sync(path, readonly=True) as record:
            entries = record.read(record.find("last").run)
        headers = [each for each in entries if isinstance(each.content, RequestHeaderContent)]
        assert len(headers) == 1, "the instructions of a turn that asked are not made again"
        said = sorted(map(str, facts(entries)))
        for each in FACTS[name]:
            if str(each).startswith("paid"):
                assert each in facts(entries) or "paid, as it seems" in said
            else:
                assert str(each) in said
        assert len(said) == len(FACTS[name])
