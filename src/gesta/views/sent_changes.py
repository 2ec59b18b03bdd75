"""Compares a request with the request before it: which messages were kept, added, changed or left out.

An entry is one recorded fact of a run; its seq is its number there. A block is one encoded message. A compaction is an
entry that leaves older messages out of the requests after it. A provider's cache is of use only up to the first changed
byte. So a message that is the same but comes after a change is not counted as kept: its step is `again`.
"""

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

from msgspec import Struct, to_builtins

from gesta.entry import Entry
from gesta.kinds import CompactionContent
from gesta.model.request import Model
from gesta.views.sent import Sent, counted

CHANGING = ("model", "instructions", "settings", "output", "prompt", "tools_in")
"""Members of a header's `meta` whose changes are listed."""


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One difference between the messages of two requests. Equal messages at the beginning are not differences."""

    change: Literal["added", "changed", "again", "gone"]
    """`added`, `changed`, `gone` (left out), or `again`: the same message, but after a change."""
    place: int | None = None
    """Index of the message in the later request; `None` if the message is gone."""
    was: int | None = None
    """Index of the message in the earlier request; `None` if the message was added."""


class Difference(Struct, frozen=True, kw_only=True):
    """The differences between a request and the request before it."""

    one: Sent[Any]
    """The later request."""
    before: Sent[Any] | None
    """The earlier request; `None` if the later one is the first of its run."""
    kept: int
    """Number of messages at the beginning that are equal in both."""
    steps: tuple[Step, ...]
    """The differences after these messages, in the order of the later request."""
    changed: tuple[str, ...]
    """Names of what changed before the first message, such as `instructions`."""
    same_bytes: int
    """Number of bytes at the beginning of both bodies that are equal."""
    left_out_by: tuple[int, ...]
    """Seqs of the compactions between the two requests."""


def difference(entries: Sequence[Entry], one: Sent[Any], before: Sent[Any] | None) -> Difference:
    """Return the differences between a request and the request before it.

    Args:
        entries: entries of the run.
        one: the later request.
        before: the earlier request; `None` if there is none.
    """
    old, new = before.request.blocks if before is not None else (), one.request.blocks
    kept = _alike(old, new)
    return Difference(
        one=one,
        before=before,
        kept=kept,
        steps=tuple(_steps(one, before, kept)),
        changed=tuple(_changed(before, one)),
        same_bytes=_same_bytes(before.request.body(), one.request.body()) if before is not None else 0,
        left_out_by=tuple(
            each.seq
            for each in entries
            if before is not None and before.seq < each.seq < one.seq and isinstance(each.content, CompactionContent)
        ),
    )


def _alike(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    """Return how many blocks are equal at the beginning of two requests."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((place for place, (old, new) in pairs if old != new), min(len(before), len(now)))


def _same_bytes(before: bytes, now: bytes) -> int:
    """Return how many bytes are equal at the beginning of two bodies."""
    least, most = 0, min(len(before), len(now))
    while least < most:
        middle = (least + most + 1) // 2
        if before[least:middle] == now[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _steps(one: Sent[Model], before: Sent[Model] | None, kept: int) -> Iterator[Step]:
    old, new = (before.request.blocks if before is not None else ())[kept:], one.request.blocks[kept:]
    for what, from_old, to_old, from_new, to_new in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        was, now = range(kept + from_old, kept + to_old), range(kept + from_new, kept + to_new)
        if what == "equal":
            yield from (Step(change="again", place=place, was=at) for place, at in zip(now, was, strict=True))
            continue
        pairs = _pairs(before, was, one, now) if before is not None else {}
        yield from (Step(change="gone", was=at) for at in was if at not in pairs.values())
        for place in now:
            paired = pairs.get(place)
            yield Step(change="added" if paired is None else "changed", place=place, was=paired)


def _pairs(before: Sent[Model], was: range, one: Sent[Model], now: range) -> dict[int, int]:
    """Return, by the index of each changed message, the index of the earlier message that it replaces.

    A message replaces another one if both answer the same call, or were made from the same entries.

    Args:
        was: the indexes of the messages of `before`, the earlier request, that may be replaced.
        now: the indexes of the changed messages of `one`, the later request.
    """
    left = {at: before.shown[at] for at in was}
    found = dict[int, int]()
    for place in now:
        mine = one.shown[place]
        for at, its in left.items():
            same = its.answers == mine.answers if mine.answers is not None else its.sources == mine.sources != ()
            if same and its.role == mine.role:
                found[place] = at
                del left[at]
                break
    return found


def _changed(before: Sent[Model] | None, one: Sent[Model]) -> list[str]:
    """Return the names of the parts before the messages, such as the tools, that differ from the earlier request.

    If one of these parts differs, the provider's cache of the earlier request cannot be used.
    """
    if before is None or before.request.envelope.head == one.request.envelope.head:
        return []
    old, new = before.header, one.header
    metas = [header.meta or {} for header in (old, new)]
    names = [name for name in CHANGING if metas[0].get(name) != metas[1].get(name)]
    if old.tools != new.tools:
        known = [{tool.get("name"): tool for tool in header.tools or ()} for header in (old, new)]
        told = [f"+{name}" for name in known[1] if name not in known[0]]
        told += [f"-{name}" for name in known[0] if name not in known[1]]
        told += [f"~{name}" for name in known[1] if name in known[0] and known[0][name] != known[1][name]]
        names.append(f"tools ({', '.join(map(str, told)) or 'their order'})")
    if old.output != new.output:
        names.append("output schema")
    return names


def difference_facts(found: Difference, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return a difference as JSON values, as `gesta show --diff --json` prints it, with the added blocks.

    Args:
        entries: the entries of the run, from which the tokens of the request are counted.
    """
    one = found.one
    added = list(zip(one.request.blocks, one.shown, strict=True))[found.kept :]
    blocks = [
        {"role": shown.role, "sources": list(shown.sources), "block": json.loads(b"[" + block + b"]")}
        for block, shown in added
    ]
    return {"request": one.seq, "added": blocks, **brief_facts(found, entries)}


def brief_facts(found: Difference, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return a difference as `difference_facts` does, without the added blocks, which can be long."""
    one, before = found.one, found.before
    return {
        "request": one.seq,
        "before": before.seq if before is not None else None,
        "kept": found.kept,
        "not_repeated": len(before.request.blocks) - found.kept if before is not None else 0,
        "tokens": to_builtins(counted(entries, one.seq)),
        "as_sent": one.known,
        "lost": dict(one.lost),
        "changed": list(found.changed),
        "steps": to_builtins(found.steps),
        "left_out_by": list(found.left_out_by),
        "bytes": len(one.request.body()),
        "same_bytes": found.same_bytes,
    }
