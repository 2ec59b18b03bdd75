"""Contracts for your own stores, models, formatters, importers and approvers, and what a crash does to an agent.

A contract is a class of tests: subclass it, say how the thing is made, and run it with pytest; each test is a sentence
about every one of its kind. `python -m gesta.testing FILE.py:agent "message"` kills an agent. Every name is imported
on use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gesta.testing.approver import ApproverContract
    from gesta.testing.crashes import crash_test
    from gesta.testing.crashes.report import Report
    from gesta.testing.formatter import FormatterContract
    from gesta.testing.importer import ImporterContract
    from gesta.testing.model import ModelContract
    from gesta.testing.rows import append_many, follow, make_batch, make_opening, make_row, refused
    from gesta.testing.store import StoreContract

WHERE = {
    "ApproverContract": "approver",
    "FormatterContract": "formatter",
    "ImporterContract": "importer",
    "ModelContract": "model",
    "Report": "crashes.report",
    "StoreContract": "store",
    "append_many": "rows",
    "crash_test": "crashes",
    "follow": "rows",
    "make_batch": "rows",
    "make_opening": "rows",
    "make_row": "rows",
    "refused": "rows",
}
"""Where each public name lives."""

__all__ = [
    "ApproverContract",
    "FormatterContract",
    "ImporterContract",
    "ModelContract",
    "Report",
    "StoreContract",
    "append_many",
    "crash_test",
    "follow",
    "make_batch",
    "make_opening",
    "make_row",
    "refused",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use: a process that is killed at once needs few of them."""
    if name not in WHERE:
        raise AttributeError(f"module 'gesta.testing' has no attribute {name!r}")
    found = getattr(import_module(f"gesta.testing.{WHERE[name]}"), name)
    globals()[name] = found
    return found
