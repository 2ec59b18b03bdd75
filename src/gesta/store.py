"""A store keeps rows and blobs, and gives the leases to write: a port of few methods, with a contract suite.

A store reads no contents: rows come encoded, and are returned unchanged. Everything but rows and blobs (indexes,
inbox, leases) is derived or temporary, and no digest covers it. Every implementation must pass
`gesta.testing.StoreContract`.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gesta.entry import GENESIS, Row
from gesta.errors import RecordError


class Info(Struct, frozen=True):
    """The identity of a store: its id, its address, and when it was made."""

    id: str
    """Random id of the record, 32 hex; it never changes."""
    address: str
    """Path or URL, without secrets; `:memory:` for a record that ends with the process."""
    created_at: str
    mark: int | None = None
    """For a copy that nobody adopted yet: the pos up to which it was copied. See `Store.adopt`."""


class BlobRow(Struct, frozen=True):
    """A large value. Its name is SHA-256(salt + data) in hex; data are the plain bytes."""

    name: str
    salt: bytes
    data: bytes


class Lease(Struct, frozen=True):
    """The right to write one run."""

    run: str
    owner: str
    """The name of the process that holds the lease, for `Store.gone`. Attempts name it. Empty in a `first_lease`."""
    epoch: int
    """Grows by at least one each time that the lease is taken."""
    head: int
    """Seq of the run's last entry when the lease was taken; 0 for a run without entries."""
    digest: bytes
    """Digest of that entry; 32 zero bytes for a run without entries."""
    lost: bool = False
    """Whether the holder before did not give the lease back: it ended, or lost its connection."""


def first_lease(run: str) -> Lease:
    """Return the lease for the first batch of a run that nobody has held yet; it is neither acquired nor released."""
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
    """Growing number that the store gives to the letter; letters become entries in this order."""


class Prune(Struct, frozen=True):
    """A run to be removed with its entries, blobs, letters and keys. Its lease ends; its epoch keeps counting."""

    lease: Lease
    """The held lease of the run at its head: a run with newer entries is not removed."""
    letters: Sequence[int] = ()
    """Ids of all letters in its inbox: a run with another letter is not removed."""


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
    """Other runs that this commit removes; its rows say so, and keep the places of their rows from being used again."""
    synced: bool = False
    """Whether the commit waits for the disk under every durability, because an effect follows."""
    beside: Sequence["Batch"] = ()
    """Batches of other runs, with rows and blobs alone, that are committed together with this batch."""


class Statements(Protocol):
    """Runs the SQL of a transactional tool, on the tables of that tool alone."""

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows."""

    def check(self) -> None:
        """Raise an error if the statements cannot be committed. It is called once the tool has returned.

        The error is one of the tool: a statement ended the transaction, or broke a constraint that is checked later.
        """


class TransactionalEffect(Struct, frozen=True):
    """An effect that commits together with the entries about it."""

    run: str
    work: Callable[[Statements], tuple[Batch, bool]]
    """Runs the effect, in the thread that writes; returns the entries, and whether the changes of the tool are kept.

    It must catch every exception of the tool, `SystemExit` and `KeyboardInterrupt` too, and call `check` on the
    statements before it returns that the changes are kept. The entries of a failed effect are committed alone.
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
    """The pos of the begin that opened it."""


class Table(Struct, frozen=True):
    """The rows that answer a query, and their columns."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class QueryBounds(Struct, frozen=True, kw_only=True):
    """Bounds of one query of a user; `None` for no bound."""

    seconds: float | None = 600.0
    rows: int | None = None
    size_bytes: int | None = None
    """The size of all texts and bytes in an answer, which is in memory as a whole."""

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
    """Objects on Gesta's tables, or with the names of Gesta's views; they are not used."""
    beside: Sequence[str] = ()
    """Tables of other programs, with their indexes, triggers and views."""
    tools: Sequence[str] = ()
    """Tables that transactional tools made, as the record lists them, with their indexes, triggers and views."""
    shared: Sequence[str] = ()
    """Files of the record that other users of the machine may read or write, each with its mode."""


class Store(Protocol):
    """The place where a record is kept."""

    queries: QueryBounds
    """Bounds of each query of `sql`."""

    @property
    def info(self) -> Info:
        """The identity of the store: its id, its address, and when it was made."""

    async def append(self, batch: Batch) -> int:
        """Commit a batch and those beside it, and return the pos of the last row; rows get consecutive places.

        A call that is cancelled before the commit has begun raises the cancellation, and nothing was committed. A call
        that is cancelled later returns.

        Raises:
            LeaseLost: the lease of one of the batches is no longer held, its epoch is not the run's, or head is not
                the run's head; nothing was committed.
            WriteFailed: nothing was committed.
        """

    async def transact(self, effect: TransactionalEffect) -> None:
        """Run an effect on the record's own tables, and commit its entries with it. No other write runs meanwhile.

        Raises:
            LeaseLost, WriteFailed: as `append`; nothing was committed. Every error of `work` is raised too.
        """

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return rows of a run by seq: from `after` + 1 to `until`, at most `limit` rows."""

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return seq and digest of the last entry of a run; 0 and 32 zero bytes if there is no such run."""

    async def last(self) -> int:
        """Return the pos of the last entry; 0 for a record without entries."""

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened: those of a session and a name, if given."""

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Read a blob, as it is stored: the reader checks whether it matches its name. Raises BrokenRecord."""

    async def send(self, letter: Letter) -> bool:
        """Put a letter into an inbox; this needs no lease. Returns False if its key was used before."""

    def deliver(self, letter: Letter) -> bool:
        """Add a letter to an inbox as `send` does, from any thread, also after the loop has ended or after `close`.

        Waits for the commit. Raises as `send`, and NoRecord: the record is gone, or was kept in memory alone.
        """

    async def inbox(self, run: str) -> list[Letter]:
        """Return the letters that wait in the inbox of a run, in the order in which they came."""

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Acquire the lease of a run. The lease of a process that has ended is taken over.

        Args:
            mirror: whether to acquire it for a mirror too, which `push` alone writes.

        Raises:
            RunHeld: another holder has the lease, in this process or in another process that has not ended.
            RunMirrored: the run is a mirror of the same run in another record.
        """

    async def release(self, lease: Lease) -> None:
        """Release the lease of a run. A lease that is no longer held is ignored.

        From the moment of the call this process no longer holds the lease, even if the call is cancelled or its commit
        fails: then the next commit frees it, and `lease` in this process can acquire it before.
        """

    async def holds(self, lease: Lease) -> bool:
        """Return whether a lease is still held. A process that was suspended may have lost its lease unnoticed."""

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Make a run a mirror of the same run in the record with the id `of`; `None` makes it an ordinary run."""

    async def gone(self, process: str) -> bool | None:
        """Return whether a process that wrote attempts has ended; `None` where that is not known.

        Args:
            process: `Lease.owner`, as an attempt names it. For this process itself the answer is `False`.
        """

    async def declare_gone(self, process: str, by: str) -> None:
        """Record that a person says that a process has ended: from now on `gone` returns `True` for that process."""

    async def adopt(self, by: str) -> None:
        """Record that a person says that this copy is to go on: `info.mark` is `None` from now on."""

    def keep(self) -> Callable[[], None]:
        """Make this process count as running until the returned function is called, also after `close`.

        For threads of tools, which may outlive the turn and the record.
        """

    def descriptor(self) -> int | None:
        """Return a file descriptor; while a subprocess that inherited it runs, this process counts as running."""

    def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Yield the rows of all runs after the pos `after`, for ever: the rows on record first, then each new row."""

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Run a query that only reads, and return its rows; a query that would write is refused."""

    async def shrink(self) -> int:
        """Free the space of pruned runs, and return by how many bytes the file or database became smaller.

        Raises:
            WriteFailed: other processes are using the store now; later entries will use the free space.
        """

    async def damage(self) -> list[str]:
        """Return the damage found in the file or database itself; an empty list without any. Cost: reads it all."""

    async def foreign(self) -> Foreign:
        """Return the objects in the file or database that Gesta did not make."""

    async def close(self) -> None:
        """Close the store, and release its locks and connections. A closed record is one file."""
