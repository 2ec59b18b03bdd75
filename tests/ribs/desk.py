"""A store, and a run in it whose transactional tools are called as the spine calls them."""

from collections.abc import Callable

from gesta.address import drive
from gesta.store import Batch, Lease, Statements, Store, TransactionalEffect
from gesta.testing import make_row

Tool = Callable[[Statements], object]


class Desk:
    """A store, and a run of it in which tools are called as the spine calls them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lease: Lease = drive(store.lease("r"))
        self.head = self.lease.head

    def call(self, tool: Tool) -> BaseException | None:
        """Call a tool; return what its result says that went wrong."""
        failures: list[BaseException] = []

        def work(sql: Statements) -> tuple[Batch, bool]:
            try:
                tool(sql)
                sql.check()
            except BaseException as failure:  # noqa: BLE001 - whatever a tool raises
                failures.append(failure)
            rows = [make_row("r", self.head + 1, "attempt"), make_row("r", self.head + 2, "tool-result")]
            return Batch(self.lease, self.head, rows), not failures

        drive(self.store.transact(TransactionalEffect("r", work)))
        self.head += 2
        assert drive(self.store.head("r"))[0] == self.head, "attempt and result are on record"
        return failures[0] if failures else None

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Look at the tables of the tools."""
        found: list[tuple[object, ...]] = []
        assert self.call(lambda sql: found.extend(sql(query))) is None
        return found
