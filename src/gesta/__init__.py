"""Gesta: agents on the record.

An agent's only state is an append-only log of what it did. The prompt, the resume after a crash, the replay, the cost
and the explanation of an answer are computed from that log. This module holds the public names; the classes of the
log's contents are in `gesta.kinds`. Each name is imported on its first use, so `import gesta` costs nothing: no I/O, no
thread, no global state.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gesta import kinds
    from gesta.address import Record, replay
    from gesta.address import open_record as open
    from gesta.agent import Agent
    from gesta.bridges.mcp.source import mcp
    from gesta.decide.waiting import Waiting
    from gesta.entry import Entry
    from gesta.errors import GestaError, InDoubt, ModelFault, ToolError
    from gesta.events import Event, Outcome
    from gesta.function_tool.context import Context, Done, NotDone, Unknown, secret
    from gesta.function_tool.tool import Tool, tool
    from gesta.log.journal import Log
    from gesta.models.function import function
    from gesta.models.hosted import hosted
    from gesta.models.scripted import call, fault, reply, scripted
    from gesta.policy import Budget, Limits, Policy, Retry
    from gesta.sync import open_sync, run_sync
    from gesta.workflow.verbs import Verbs

    __version__: str

WHERE = {
    "Agent": "agent",
    "Budget": "policy",
    "Context": "function_tool.context",
    "Done": "function_tool.context",
    "Entry": "entry",
    "Event": "events",
    "GestaError": "errors",
    "InDoubt": "errors",
    "Limits": "policy",
    "Log": "log.journal",
    "ModelFault": "errors",
    "NotDone": "function_tool.context",
    "Outcome": "events",
    "Policy": "policy",
    "Record": "address",
    "Retry": "policy",
    "Tool": "function_tool.tool",
    "ToolError": "errors",
    "Unknown": "function_tool.context",
    "Verbs": "workflow.verbs",
    "Waiting": "decide.waiting",
    "call": "models.scripted",
    "fault": "models.scripted",
    "function": "models.function",
    "hosted": "models.hosted",
    "mcp": "bridges.mcp.source",
    "open": "address",
    "open_sync": "sync",
    "replay": "address",
    "reply": "models.scripted",
    "run_sync": "sync",
    "scripted": "models.scripted",
    "secret": "function_tool.context",
    "tool": "function_tool.tool",
}
"""The module that defines each public name."""

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
    "ToolError",
    "Unknown",
    "Verbs",
    "Waiting",
    "call",
    "fault",
    "function",
    "hosted",
    "kinds",
    "mcp",
    "open",
    "open_sync",
    "replay",
    "reply",
    "run_sync",
    "scripted",
    "secret",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Return a public name of the package, imported on its first use. Raises AttributeError for an unknown name."""
    if name == "kinds":
        return import_module("gesta.kinds")
    if name == "__version__":
        metadata = import_module("importlib.metadata")
        try:
            return metadata.version("gesta")
        except metadata.PackageNotFoundError:  # run from a folder that is not installed
            return "0+unknown"
    if name not in WHERE:
        meant = "" if name.startswith("_") else import_module("gesta.errors").nearest(name, __all__)
        raise AttributeError(f"module 'gesta' has no attribute {name!r}.{meant}".removesuffix("."))
    found = getattr(import_module(f"gesta.{WHERE[name]}"), "open_record" if name == "open" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
