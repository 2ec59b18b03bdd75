"""Functions whose annotations are texts, for the tests of signatures."""

from __future__ import annotations

import gesta


def numbered(key: str, number: int) -> gesta.NotDone:
    return gesta.NotDone()


def keyed(key: bytes) -> gesta.NotDone:
    return gesta.NotDone()


def fits(key: str, context: gesta.Context | None) -> gesta.NotDone:
    return gesta.NotDone()
