"""Finds the child runs of a recorded run. A child run is a run of another agent, to which the run gave a task."""

from collections.abc import Mapping, Sequence

from gesta.entry import Entry
from gesta.kinds import BeginContent, EdgeContent, Opened, SystemContent
from gesta.perform.checks import BY


def opened_in(entries: Sequence[Entry]) -> Opened | None:
    """Return session, name and parent of a run, as its first entry says; `None` if there are no entries.

    It is also `None` if the first entry says nothing of the run, as in an activity log.
    """
    content = entries[0].content if entries else None
    return content.opened if isinstance(content, BeginContent) else None


def is_child(entries: Sequence[Entry], parent: str, name: str) -> bool:
    """Return whether these are the entries of the child run `name` of `parent`."""
    opened = opened_in(entries)
    return opened is not None and opened.parent_run == parent and opened.name == name


def children(runs: Mapping[str, Sequence[Entry]], parent: str) -> dict[int, str]:
    """Return the names of the child runs of `parent`, by the seq of the `edge` entry with the child run's task."""
    found = dict[int, str]()
    for entries in runs.values():
        opened = opened_in(entries)
        if opened is not None and opened.parent_run == parent:
            causes = [cause for each in entries if isinstance(each.content, SystemContent) for cause in each.causes]
            found |= {cause[1]: opened.name for cause in causes if isinstance(cause, tuple) and cause[0] == parent}
    return found


def before(entries: Sequence[Entry], edge: int, named: int) -> int:
    """Return the seq of the last entry that was written for certain before the end of a child run was known.

    This is the entry before the first one that names the end. A hook that called another agent after this one may have
    had the end by then, so for a hook it is the entry before its next `edge`.

    Args:
        edge: seq of the entry that started the child run.
        named: seq of the first entry that names the end.
    """
    first = entries[edge - 1].content
    assert isinstance(first, EdgeContent)
    for each in entries[edge : named - 1] if BY in first.source[-1].rpartition("#")[0].split() else ():
        if isinstance(each.content, EdgeContent) and each.content.source == first.source:
            return each.seq - 1
    return named - 1
