"""A store keeps rows and blobs, and says who may write: a port of few methods, with a contract suite.

It knows no content: rows come encoded and go out as they came. Everything but rows and blobs (indexes, inbox,
leases) is derived or passing, and lies outside the digests. `gesta.testing.StoreContract` is what every
implementation must pass.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gesta.entry import GENESIS, Row
from gesta.errors import RecordError


class Info(Struct, frozen=True):
    """Format, id and address of a store."""

    id: str
    """Random, 32 hex, made with the record and never changed."""
    address: str
    """Path or URL, without secrets; `:memory:` for one that ends with the process."""
    created_at: str
    mark: int | None = None
    """Of a copy that nobody adopted yet: the pos up to which it was copied. See `Store.adopt`."""


class BlobRow(Struct, frozen=True):
    """A large value. Its name is SHA-256(salt + data) in hex; data are the plain bytes."""

    name: str
    salt: bytes
    data: bytes


class Lease(Struct, frozen=True):
    """The right to write one run."""

    run: str
    owner: str
    """The process that holds it, as `Store.gone` reads it: each attempt names it. Empty in a `first_lease`."""
    epoch: int
    """Grows by at least one each time that the lease is taken."""
    head: int
    """Seq of the run's last entry when the lease was taken; 0 for a run without entries."""
    digest: bytes
    """Digest of that entry; 32 zero bytes for a run without entries."""
    lost: bool = False
    """Whether the holder before did not give the lease back: it died, or lost its connection."""


def first_lease(run: str) -> Lease:
    """Return what a batch needs that begins a run which nobody has held so far; nothing is taken or given back."""
    return Lease(run, owner="", epoch=0, head=0, digest=GENESIS)


class Letter(Struct, frozen=True):
    """A message, approval or cancellation that waits in the inbox of a run until it becomes an entry."""

    run: str
    key: str
    """Unique within the run, also after the letter was taken in: sending it twice counts once."""
    content: str
    """Encoded content."""
    at: str = ""
    """UTC, as in `Row`; stamped by the store's own clock when it takes the letter."""
    id: int = 0
    """Given by the store, growing; letters are taken in by it."""


class Prune(Struct, frozen=True):
    """A run to be removed with its entries, blobs, letters and keys. Its lease ends; its epoch keeps counting."""

    lease: Lease
    """Held, at the head that it names: a run to which something was added meanwhile stays."""
    letters: Sequence[int] = ()
    """Ids of all letters that wait in its inbox; one more, and the run stays."""


class Batch(Struct, frozen=True):
    """The entries and changes that one append commits, all together or not at all."""

    lease: Lease
    head: int
    """Seq of the entry that the first row follows."""
    rows: Sequence[Row]
    blobs: Sequence[BlobRow] = ()
    letters: Sequence[int] = ()
    """Ids of inbox letters that became rows."""
    prunes: Sequence[Prune] = ()
    """Other runs that go with this commit; its rows say so, and keep their places from being given out again."""
    synced: bool = False
    """Whether the commit waits for the disk under every durability: an effect follows that must not be forgotten."""
    beside: Sequence["Batch"] = ()
    """Batches of other runs, of rows and blobs alone, that are committed with it."""


class Statements(Protocol):
    """Runs statements on the tables of a transactional tool."""

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows."""

    def check(self) -> None:
        """Raise the error that keeps the statements from being committed. Called once the tool has returned.

        It is an error of the tool: a statement ended the transaction, or broke a constraint that is checked later.
        """


class TransactionalEffect(Struct, frozen=True):
    """An effect that commits together with the entries about it."""

    run: str
    work: Callable[[Statements], tuple[Batch, bool]]
    """Does it, in the thread that writes; gives the entries, and whether what it did is kept.

    It must catch whatever the tool raises, `SystemExit` and `KeyboardInterrupt` too, and call `check` on the statements
    before it says that what they did is kept. The entries of an effect that failed are committed without it.
    """
    timeout_s: float | None = None


class RunRow(Struct, frozen=True):
    """One run, read from the begin that opened it."""

    run: str
    session: str
    name: str
    record: str
    parent_run: str | None
    at: str
    head: int
    """Seq of its last entry."""
    last_at: str
    """Time of its last entry."""
    pos: int
    """Place of the begin that opened it."""


class Table(Struct, frozen=True):
    """The rows that answer a query, and their columns."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class QueryBounds(Struct, frozen=True, kw_only=True):
    """Bounds of one query of a user; `None` for no bound."""

    seconds: float | None = 600.0
    rows: int | None = None
    size_bytes: int | None = None
    """Of all texts and bytes in an answer, which is in memory as a whole."""

    def passed(self, query: str, name: str) -> RecordError:
        """Return the error of a query that exceeded one of these bounds."""
        most = getattr(self, name)
        found = {"seconds": "took longer than", "rows": "has more rows than", "size_bytes": "holds more bytes than"}
        return RecordError(
            f"Cannot answer {query!r:.2000}: it {found[name]} {most:,}. Ask for less, or raise it: gesta sql "
            f"--{name.partition('_')[0]} N, or gesta.open(…, queries=QueryBounds({name}=N))."
        )


class Foreign(Struct, frozen=True):
    """Objects in a file or schema that no release of Gesta made, each with a name for people."""

    aside: Sequence[str] = ()
    """Stands on Gesta's tables or in the name of Gesta's views, and is not used."""
    beside: Sequence[str] = ()
    """Tables of other programs, and all that stands on them."""
    tools: Sequence[str] = ()
    """Tables that transactional tools made, as the record lists them, and what stands on them."""
    shared: Sequence[str] = ()
    """Files of the record that other users of the machine may read or write, each with its mode."""


class Store(Protocol):
    """Where a record is kept."""

    queries: QueryBounds
    """Bounds of what `sql` answers."""

    @property
    def info(self) -> Info:
        """Format, id and address of the store."""

    async def append(self, batch: Batch) -> int:
        """Commit a batch and those beside it, and return the pos of the last row; rows get consecutive places.

        Cancelled before the commit has begun, it raises the cancellation and nothing was committed; cancelled later,
        it returns.

        Raises:
            LeaseLost: the lease of one of the batches is no longer held, its epoch is not the run's, or head is not
                the run's head; nothing was committed.
            WriteFailed: nothing was committed.
        """

    async def transact(self, effect: TransactionalEffect) -> None:
        """Do a work on the record's own tables and commit its entries with it, alone on the writer; the loop waits.

        Raises:
            LeaseLost, WriteFailed: as `append`; nothing happened. Whatever the work raises, too.
        """

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Yield rows of a run by seq: from `after` + 1 to `until`, at most `limit` of them."""

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return seq and digest of the last entry; (0, 32 zero bytes) for no run."""

    async def last(self) -> int:
        """Return the pos of the last entry; 0 for a record without entries."""

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened, by session and name if given."""

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Read a blob, as it is stored: whether it matches its name is the reader's to check. Raises BrokenRecord."""

    async def send(self, letter: Letter) -> bool:
        """Put a letter into an inbox; needs no lease. False if its key was used before."""

    def deliver(self, letter: Letter) -> bool:
        """Put a letter into an inbox as `send` does, from any thread, also where the loop has ended or after `close`.

        Waits for the commit. Raises as `send`, and NoRecord: the record is gone, or was kept in memory alone.
        """

    async def inbox(self, run: str) -> list[Letter]:
        """Return the letters that wait, in the order in which they came. Cheap when no letter waits."""

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Acquire the right to write a run. The lease of a dead owner is taken over.

        Args:
            mirror: whether to acquire it for a mirror too, which `push` alone writes.

        Raises:
            RunHeld: a holder that lives has it, in this process or in another one.
            RunMirrored: the run is a mirror of the same run in another record.
        """

    async def release(self, lease: Lease) -> None:
        """Release the right to write a run. A lease that is no longer held is ignored.

        From the moment of the call nobody in this process holds it any more, also if the call is cancelled or its
        commit fails: then it is given back with the next commit, and who asks for the run meanwhile gets it.
        """

    async def holds(self, lease: Lease) -> bool:
        """Return whether a lease is still held. A process that stood still for long may have lost it unnoticed."""

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Make a run a mirror of the same run in the record with the id `of`; `None` makes it an ordinary run."""

    async def gone(self, process: str) -> bool | None:
        """Return whether a process that wrote attempts has ended; `None` where that is not known.

        Args:
            process: `Lease.owner`, as it stands in an attempt. For this process itself the answer is `False`.
        """

    async def declare_gone(self, process: str, by: str) -> None:
        """Write down that a person says that a process has ended: from now on `gone` returns `True` for it."""

    async def adopt(self, by: str) -> None:
        """Write down that a person says that this copy is the one that goes on: `info.mark` is `None` from now on."""

    def keep(self) -> Callable[[], None]:
        """Make this process count as living until the returned function is called, also after `close`.

        For threads of tools, which may outlive the turn and the record.
        """

    def descriptor(self) -> int | None:
        """Return a file descriptor by which a subprocess that inherits it keeps this process counted as living."""

    def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Rows of all runs by pos, from `after` on, for ever: those on record first, then as they come."""

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Answer a reading query; one that would write is refused."""

    async def shrink(self) -> int:
        """Free the space of pruned runs, and return by how many bytes the file or database became smaller.

        Raises:
            WriteFailed: others are using it just now; the space is used again by what comes.
        """

    async def damage(self) -> list[str]:
        """Return what is broken in the file or database itself; an empty list if nothing is. Cost: reads it all."""

    async def foreign(self) -> Foreign:
        """Return what the file or database holds that Gesta did not make."""

    async def close(self) -> None:
        """Release what is held. A closed record is one file; closing twice does nothing."""
