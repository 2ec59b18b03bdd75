"""Finds the child runs of a recorded run. A child run is a run of another agent, to which the run gave a task."""

from collections.abc import Mapping, Sequence

from gesta.entry import Entry
from gesta.kinds import BeginContent, Opened, SystemContent


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
