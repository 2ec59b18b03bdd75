"""Contents and activity logs beside agent-catalog itself: the same calls, the same results, over random cases.

Needs agentc, which `.ci/originals` installs in an environment of its own. What differs is of a class of `CLASSES`.
"""

import importlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest

from gesta.address import drive
from gesta.codec.rows import canonical
from gesta.compat import agent_catalog as ours
from gesta.compat.agent_catalog.export import export_run

pytest.importorskip("agentc", reason="runs where this is installed: agentc")

CASES = 500
LIMIT = 0.01
"""Share of plain cases that may differ, each in a class."""


class Plain:
    """An object of a user."""

    def __repr__(self) -> str:
        return "Plain()"


CLASSES: dict[str, str] = {
    "unwritable": "agent-catalog raises while it writes JSON; here the text that Python shows is written",
    "text of a value": "times, durations, numbers that are none, keys that are not text, and objects of a state are written otherwise",
    "unknown keyword": "agent-catalog drops it without a word; here it is refused, and the nearest name is shown",
    "no id of a call": "agent-catalog demands it, against its own text; here it may be missing",
    "tools that are a class": "agent-catalog gives the class `list` where no tools were given; here it is None",
    "bytes as text": "agent-catalog takes bytes where a text is due",
}
ODD: tuple[Any, ...] = (
    *(Plain(), [Plain(), (Plain(),)], b"text", b"\xff", float("nan"), float("inf"), "\ud800", {1: 2}, {(1, 2): 3}),
    *(datetime(2026, 1, 2, tzinfo=UTC), timedelta(seconds=3), Decimal("1.5"), UUID(int=1), PurePosixPath("/a")),
    *({1}, frozenset({1}), 2**70, complex(1, 2), range(3), {None: 1, True: 2}, Ellipsis, ours.Kind.User, Ellipsis),
)


def theirs() -> Any:
    return importlib.import_module("agentc_core.activity.models.content")


def value(draw: random.Random, depth: int = 0) -> Any:
    """A value that JSON holds."""
    kind = draw.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 7:
        return {word(draw): value(draw, depth + 1) for _ in range(draw.randrange(4))}
    made: tuple[Any, ...] = (
        None,
        draw.random() < 0.5,
        draw.randrange(-(10**9), 10**9),
        draw.uniform(-9, 9),
        word(draw),
    )
    return made[kind] if kind < 5 else word(draw) * draw.choice((1, 40, 4000))


def word(draw: random.Random) -> str:
    return "".join(draw.choice('ab$ \n"\\é漢😀{}\t\x00') for _ in range(draw.randrange(9)))


def wrong(draw: random.Random, good: Any) -> Any:
    """Nearly always the good value."""
    return draw.choice((None, 5, [], {}, "x", [1], {"a": 1})) if draw.random() < 0.06 else good


def members(draw: random.Random, kind: str) -> dict[str, Any]:
    """Members of a content, nearly always good ones."""
    objects = {word(draw): value(draw) for _ in range(draw.randrange(3))}
    known: dict[str, dict[str, Any]] = {
        "System": {"value": word(draw)},
        "ToolCall": {"tool_name": word(draw), "tool_args": objects, "tool_call_id": word(draw), "status": "error"},
        "ToolResult": {"tool_result": value(draw), "tool_call_id": None, "status": draw.choice(("success", None))},
        "ChatCompletion": {"output": word(draw), "meta": draw.choice((None, objects))},
        "RequestHeader": {
            "tools": [{"name": "t", "description": word(draw), "args_schema": objects}],
            "output": objects,
        },
        "User": {"value": word(draw), "user_id": draw.choice((None, "u"))},
        "Assistant": {"value": word(draw)},
        "Begin": {"state": value(draw)},
        "End": {"state": value(draw)},
        "Edge": {"source": [word(draw)], "dest": ["a", "b"], "payload": value(draw)},
        "KeyValue": {"key": word(draw), "value": value(draw)},
    }
    given = {name: wrong(draw, one) for name, one in known[kind].items() if draw.random() < 0.97}
    if kind == "RequestHeader":
        given.setdefault("tools", None)
    return given | ({"extra": objects} if draw.random() < 0.3 else {})


def outcome(make: Callable[[], Any]) -> Any:
    """What comes of making a content: its members and its JSON, or that it is refused."""
    try:
        made = make()
    except (ValueError, TypeError):
        return "refused"
    try:
        text = json.loads(made.model_dump_json())
    except ValueError:
        text = "unwritable"
    return json.loads(json.dumps(made.model_dump(), default=repr)), text, repr(made.kind == str(made.kind))


NAMES = ("System", "ToolCall", "ToolResult", "ChatCompletion", "RequestHeader", "User", "Assistant", "Begin", "End", "Edge", "KeyValue")  # fmt: skip


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    draw = random.Random(7)
    for _ in range(CASES):
        kind = draw.choice(NAMES)
        yield kind, members(draw, kind)


def kind_of_difference(kind: str, given: dict[str, Any], their: Any, own: Any) -> str:
    if kind == "ToolCall" and "tool_call_id" not in given:
        return "no id of a call"
    if kind == "ToolCall" and given["tool_call_id"] is None and their == "refused":
        return "no id of a call"
    if their != "refused" and their[1] == "unwritable":
        return "unwritable"
    return f"{kind} {given!r}: {their!r}, here {own!r}"


def test_random_contents_are_made_and_dumped_alike() -> None:
    found: Counter[str] = Counter()
    for kind, given in cases():
        classes = [getattr(of, f"{kind}Content") for of in (theirs(), ours)]
        pair = [outcome(partial(made, **given)) for made in classes]
        validated = [outcome(partial(made.model_validate, {**given, "more": 1})) for made in classes]
        for their, own in (pair, validated):
            if canonical(their) != canonical(own):
                found[kind_of_difference(kind, given, their, own)] += 1
    print(f"{2 * CASES} compared, {sum(found.values())} differ: {dict(found)}")
    assert set(found) <= set(CLASSES)
    assert sum(count for name, count in found.items() if name != "no id of a call") <= LIMIT * 2 * CASES


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_odd_values_are_written_alike_or_differ_in_a_class(odd: Any) -> None:
    for kind, name in (("KeyValue", "value"), ("ToolResult", "tool_result"), ("Begin", "state"), ("Edge", "payload")):
        given = (
            {name: odd}
            | ({"key": "k"} if kind == "KeyValue" else {})
            | ({"source": [], "dest": []} if kind == "Edge" else {})
        )
        try:
            their = json.loads(getattr(theirs(), f"{kind}Content")(**given).model_dump_json())
        except ValueError:
            their = "unwritable"
        own = json.loads(getattr(ours, f"{kind}Content")(**given).model_dump_json())
        if their not in (own, "unwritable"):
            assert {key: their[key] for key in their if key != name} == {key: own[key] for key in own if key != name}
            allowed = datetime | timedelta | float | complex | dict | Plain | ours.Kind
            assert isinstance(odd, allowed), (their, own)


def test_what_differs_otherwise_is_shown() -> None:
    assert theirs().UserContent(value="", user="x").user_id is None, "unknown keyword"
    assert theirs().RequestHeaderContent().tools is list, "tools that are a class"
    assert theirs().UserContent(value=b"x").value == "x", "bytes as text"
    with pytest.raises(TypeError, match="has no field 'user'"):
        ours.UserContent(value="", user="x")  # type: ignore[call-arg]
    assert ours.RequestHeaderContent().tools is None
    with pytest.raises(ours.BadContent):
        ours.UserContent(value=b"x")  # type: ignore[arg-type]


def program(of: Any, root: Any, draw: random.Random) -> None:
    """A random program: spans in spans, entered or not, that log random contents with annotations."""
    spans = [root]
    for _ in range(draw.randrange(4, 16)):
        span = draw.choice(spans)
        if draw.random() < 0.3:
            spans.append(span.new(draw.choice("xyz"), **{word(draw): draw.randrange(9)} if draw.random() < 0.5 else {}))
            continue
        if draw.random() < 0.2:
            with span.new("inner", state={"n": draw.randrange(9)}, blacklist={"system"}) as inner:
                inner["in"] = value(draw)
                inner.log(of.SystemContent(value="skipped"))
            continue
        kind = draw.choice(
            ("System", "ToolCall", "ToolResult", "ChatCompletion", "User", "Assistant", "Edge", "KeyValue")
        )
        given = members(draw, kind)
        try:
            content = getattr(of, f"{kind}Content")(**{"tool_call_id": "c", **given} if kind == "ToolCall" else given)
        except (ValueError, TypeError):
            continue
        span.log(content, **({"note": value(draw)} if draw.random() < 0.3 else {}))


def lines_of(text: str) -> list[Any]:
    """Lines without what is made up: ids, times, the version of the catalog, and what JSON leaves out where it is null."""
    kept = []
    for line in text.splitlines():
        log = json.loads(line)
        content = {name: one for name, one in log["content"].items() if one is not None and name != "extra"}
        kept.append((log["span"], content, log.get("annotations") or {}))
    return kept


def test_random_programs_write_the_same_activity_logs(tmp_path: Path) -> None:
    span_module = importlib.import_module("agentc_core.activity.span")
    config = importlib.import_module("agentc_core.config")
    version = importlib.import_module("agentc_core.version").VersionDescriptor(
        timestamp=datetime.now(UTC), is_dirty=True
    )
    differ = []
    for seed in range(CASES // 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        local = config.Config(activity_path=folder)
        root = span_module.GlobalSpan(config=local, version=version, name="app", session="s", kwargs={"v": 1})
        program(theirs(), root, random.Random(seed))
        root._local_logger.rotating_handler.close()
        their = lines_of(
            (folder / "activity.log").read_text(encoding="utf-8") if (folder / "activity.log").exists() else ""
        )
        catalog = ours.Catalog(":memory:")
        own_root = catalog.Span(name="app", session="s", v=1)
        program(ours, own_root, random.Random(seed))
        rows = drive(catalog.record.store.runs())
        own = lines_of("".join(drive(every(catalog, row.run)) for row in rows))
        differ += [(seed, a, b) for a, b in zip(their, own, strict=False) if canonical(a) != canonical(b)]
        differ += [] if len(their) == len(own) else [(seed, len(their), len(own))]
    assert differ == []


async def every(catalog: ours.Catalog, run: str) -> str:
    return "".join([line async for line in export_run(catalog.record, run)])
