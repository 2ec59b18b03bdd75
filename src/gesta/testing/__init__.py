"""Contracts for your own stores, models, formatters, importers and approvers, and a test that kills an agent's process.

A contract is a class of tests: subclass it, define how the tested object is made, and run the class with pytest. The
name of each test is a sentence that must hold. `python -m gesta.testing FILE.py:agent "message"` runs the crash test.
Every name is imported on its first use.
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
"""Module of each public name."""

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
    """Import a public name on its first use, because a process that is killed at once needs few of them."""
    if name not in WHERE:
        raise AttributeError(f"module 'gesta.testing' has no attribute {name!r}")
    found = getattr(import_module(f"gesta.testing.{WHERE[name]}"), name)
    globals()[name] = found
    return found
