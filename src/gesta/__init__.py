"""Gesta: agents on the record.

An agent's only state is an append-only log of what it did; prompt, resume, replay, cost and explanation are computed
from it. This is the public door; kinds are reached as `gesta.kinds`. Every name is imported on use, so that
`import gesta` costs nothing: no I/O, no thread, nothing global.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gesta import kinds
    from gesta.address import Record, replay
    from gesta.address import open_record as open
    from gesta.agent import Agent
    from gesta.blocking import open_sync, run_sync
    from gesta.context import Context, Done, NotDone, Unknown
    from gesta.entry import Entry
    from gesta.errors import GestaError, InDoubt, ModelFault
    from gesta.event import Event
    from gesta.log import Log
    from gesta.models.function import function
    from gesta.models.scripted import call, fault, reply, scripted
    from gesta.outcome import Outcome
    from gesta.policy import Budget, Limits, Policy, Retry
    from gesta.tooling import Tool, tool
    from gesta.verbs import Verbs

WHERE = {
    "Agent": "agent",
    "Budget": "policy",
    "Context": "context",
    "Done": "context",
    "Entry": "entry",
    "Event": "event",
    "GestaError": "errors",
    "InDoubt": "errors",
    "Limits": "policy",
    "Log": "log",
    "ModelFault": "errors",
    "NotDone": "context",
    "Outcome": "outcome",
    "Policy": "policy",
    "Record": "address",
    "Retry": "policy",
    "Tool": "tooling",
    "Unknown": "context",
    "Verbs": "verbs",
    "call": "models.scripted",
    "fault": "models.scripted",
    "function": "models.function",
    "open": "address",
    "open_sync": "blocking",
    "replay": "address",
    "reply": "models.scripted",
    "run_sync": "blocking",
    "scripted": "models.scripted",
    "tool": "tooling",
}
"""Where each public name lives."""

__all__ = [
    "Agent",
    "Budget",
    "Context",
    "Done",
    "Entry",
    "Event",
    "GestaError",
    "InDoubt",
    "Limits",
    "Log",
    "ModelFault",
    "NotDone",
    "Outcome",
    "Policy",
    "Record",
    "Retry",
    "Tool",
    "Unknown",
    "Verbs",
    "call",
    "fault",
    "function",
    "kinds",
    "open",
    "open_sync",
    "replay",
    "reply",
    "run_sync",
    "scripted",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name == "kinds":
        return import_module("gesta.kinds")
    if name not in WHERE:
        raise AttributeError(f"module 'gesta' has no attribute {name!r}")
    found = getattr(import_module(f"gesta.{WHERE[name]}"), "open_record" if name == "open" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
