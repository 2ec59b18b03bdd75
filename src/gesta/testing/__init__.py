"""Tests for your own stores, models, formatters, importers and approvers, and a test that kills an agent's process.

A contract is a class of tests that every store, model and so on must pass. Subclass it, define how the tested object is
made, and run the class with pytest. The name of each test is a sentence that must be true. The crash test is also
started by `python -m gesta.testing FILE.py:agent "message"`. Every name is imported on its first use.
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
"""The module of each public name, relative to this package."""

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
    """Return a public name, which is imported on its first use.

    A process of the crash test needs few of these names, and starts faster without the others.
    """
    if name not in WHERE:
        raise AttributeError(f"module 'gesta.testing' has no attribute {name!r}")
    found = getattr(import_module(f"gesta.testing.{WHERE[name]}"), name)
    globals()[name] = found
    return found
