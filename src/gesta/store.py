"""A store keeps rows and blobs, and grants the leases that allow writing. Every store passes one contract suite.

A store reads no contents: rows come encoded, and are returned unchanged. All other data (indexes, inbox, leases) are
derived or temporary, and no digest covers them. Every implementation must pass `gesta.testing.StoreContract`.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from gesta.entry import GENESIS, Row
from gesta.errors import RecordError


class Info(Struct, frozen=True):
    """The identity of a store: its id, its address, and when it was made."""

    id: str
    """Random id of the record, 32 hex; it never changes."""
    address: str
    """Path or URL, without secrets; `:memory:` for a record in memory."""
    created_at: str
    mark: int | None = None
    """For a copy of a record that was not adopted yet: the pos up to which it was copied. See `Store.adopt`."""
    sql: Literal["sqlite", "postgresql"] = "sqlite"
    """The database whose SQL `Store.sql` takes."""


class BlobRow(Struct, frozen=True):
    """A large value. Its name is SHA-256(salt + data) in hex; data are the plain bytes."""

    name: str
    salt: bytes
    data: bytes


class Lease(Struct, frozen=True):
    """The right to write one run."""

    run: str
    owner: str
    """The name of the process that holds the lease, for `Store.gone`; attempts hold it too. Empty in a
    `first_lease`."""
    epoch: int
    """Grows by at least one each time that the lease is taken."""
    head: int
    """Seq of the run's last entry when the lease was taken; 0 for a run without entries."""
    digest: bytes
    """Digest of that entry; 32 zero bytes for a run without entries."""
    lost: bool = False
    """Whether the holder before did not release the lease, because it ended or lost its connection."""


def first_lease(run: str) -> Lease:
    """Return the lease for the first batch of a run that nobody has held. It needs no acquiring and no releasing."""
    return Lease(run, owner="", epoch=0, head=0, digest=GENESIS)


class Letter(Struct, frozen=True):
    """A message, approval or cancellation that waits in the inbox of a run until it becomes an entry."""

    run: str
    key: str
    """Unique within the run, also after the letter became an entry: a second letter with the key is ignored."""
    content: str
    """Encoded content."""
    at: str = ""
    """UTC, as in `Row`: the time at which the store received the letter, by the store's own clock."""
    id: int = 0
    """A number that the store assigns in growing order; letters become entries in this order."""


class Prune(Struct, frozen=True):
    """A run to be removed with its entries, blobs, letters and keys. Its lease ends; its epoch keeps counting."""

    lease: Lease
    """The held lease of the run, at the run's head: a run with newer entries is not removed."""
    letters: Sequence[int] = ()
    """Ids of all letters in its inbox: a run with any other letter is not removed."""


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
    """Other runs that this commit removes. The rows of the batch record the removal, and keep the removed rows' pos
    from being used again."""
    synced: bool = False
    """Whether the commit waits until it is on disk, whatever the durability, because an effect follows."""
    beside: Sequence["Batch"] = ()
    """Batches of other runs that are committed together with this batch. They have only rows and blobs."""


class Statements(Protocol):
    """Runs the SQL of a transactional tool, on the tables of that tool alone."""

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows."""

    def check(self) -> None:
        """Raise an error if the statements cannot be committed. It is called once the tool has returned.

        The tool caused the error: a statement ended the transaction, or broke a constraint that is checked at the
        commit.
        """


class TransactionalEffect(Struct, frozen=True):
    """An effect that commits together with the entries about it."""

    run: str
    work: Callable[[Statements], tuple[Batch, bool]]
    """Runs the effect, in the thread that writes. Returns the entries, and whether the changes of the tool are kept. It
    must catch every exception of the tool, also `SystemExit` and `KeyboardInterrupt`. Before it returns that the
    changes are kept, it must call `check` on the statements. If the effect failed, only the entries are committed."""
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
    """Size of all texts and bytes in the result of a query, in bytes; the result is held in memory."""

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
    """Tables of other programs in the same file or schema, with their indexes, triggers and views."""
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
        """Commit a batch and the batches beside it. Return the pos of the last row; the rows get consecutive pos.

        A call that is cancelled before the commit has begun raises the cancellation, and nothing was committed. A call
        that is cancelled later returns as if it were not cancelled.

        Raises:
            LeaseLost: the lease of one of the batches is no longer held, its epoch is not the run's, or its head is not
                the run's head; nothing was committed.
            WriteFailed: nothing was committed.
        """

    async def transact(self, effect: TransactionalEffect) -> None:
        """Run the work of an effect in the record's database, and commit its changes and entries in one transaction.

        Other writes wait meanwhile.

        Raises:
            LeaseLost, WriteFailed: as `append`; nothing was committed. Every error of `effect.work` is raised too.
        """

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return rows of a run by seq: from `after` + 1 to `until`, at most `limit` rows."""

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return seq and digest of the last entry of a run; 0 and 32 zero bytes if there is no such run."""

    async def last(self) -> int:
        """Return the pos of the last entry; 0 for a record without entries."""

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened; only those of a session and a name, if given."""

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Read a blob, as it is stored: the reader checks whether it matches its name. Raises BrokenRecord."""

    async def send(self, letter: Letter) -> bool:
        """Put a letter into an inbox; this needs no lease. Returns False if its key was used before."""

    def deliver(self, letter: Letter) -> bool:
        """Add a letter to an inbox as `send` does, from any thread, also after the event loop or the store has ended.

        Waits for the commit. Raises the errors of `send`, and NoRecord if the record is gone or was kept in memory
        alone.
        """

    async def inbox(self, run: str) -> list[Letter]:
        """Return the letters that wait in the inbox of a run, in the order in which they came."""

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Acquire the lease of a run. If the process that holds it has ended, the lease is taken from it.

        Args:
            mirror: whether to acquire the lease of a mirror too, which only `push` writes.

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
        """Return whether a lease is still held. A process that was suspended may have lost its lease without notice."""

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Make a run a mirror of the same run in the record with the id `of`; `None` makes it an ordinary run."""

    async def gone(self, process: str) -> bool | None:
        """Return whether a process that wrote attempts has ended; `None` if that is not known.

        Args:
            process: `Lease.owner`, which attempts hold. For this process itself the result is `False`.
        """

    async def declare_gone(self, process: str, by: str) -> None:
        """Record a person's statement that a process has ended. After that `gone` returns `True` for the process."""

    async def adopt(self, by: str) -> None:
        """Record a person's decision that this copy of a record is used from now on.

        After that `info.mark` is `None`.
        """

    def keep(self) -> Callable[[], None]:
        """Make this process count as running until the returned function is called, also after `close`.

        For the threads of tools, which may run longer than the turn and the record are open.
        """

    def descriptor(self) -> int | None:
        """Return a file descriptor; while a subprocess that inherited it runs, this process counts as running."""

    def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Yield the rows of all runs after the pos `after`, without end: rows on record first, then new rows."""

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Run a query that only reads, and return its rows; a query that would write is refused."""

    async def shrink(self) -> int:
        """Free the space of pruned runs, and return by how many bytes the file or database became smaller.

        Raises:
            WriteFailed: other processes are using the store now; later entries will use the free space.
        """

    async def damage(self) -> list[str]:
        """Return the damage found in the file or database itself; an empty list if there is none.

        Cost: reads it all.
        """

    async def foreign(self) -> Foreign:
        """Return the objects in the file or database that Gesta did not create."""

    async def close(self) -> None:
        """Close the store, and release its locks and connections. A closed record in SQLite is one file."""
