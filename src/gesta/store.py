"""A store keeps rows (encoded entries) and blobs (large values), and grants the leases that allow writing to a run.

A *record* is everything in one store. A *run* is one conversation or task of an agent. Its entries are the stored facts
about it, numbered from 1 by `seq`. The number `pos` counts the entries of all runs, in commit order. A *digest* is a
hash of an entry and of all entries before it. A *letter* is a message or an answer that waits in the inbox of a run. A
*lease* is the right of one process to write a run.

A store does not read contents: rows come encoded, and are returned unchanged. Everything else in a store (indexes,
inboxes, leases) is derived or temporary, and no digest covers it. Every implementation must pass the tests of
`gesta.testing.StoreContract`.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from gesta.entry import GENESIS, Row
from gesta.errors import RecordError


class Info(Struct, frozen=True):
    """The identity of a store: its id, its address, and when it was created."""

    id: str
    """Random id of the record, 32 hex; it never changes."""
    address: str
    """Path or URL, without secrets; `:memory:` for a record in memory."""
    created_at: str
    mark: int | None = None
    """For a copy of a record, the pos of the last entry that was copied; `None` after `Store.adopt`."""
    sql: Literal["sqlite", "postgresql"] = "sqlite"
    """The SQL dialect of the queries that `Store.sql` accepts."""


class BlobRow(Struct, frozen=True):
    """A large value, stored outside of its entry. `name` is SHA-256(salt + data) in hex; `data` is the value."""

    name: str
    salt: bytes
    data: bytes


class Lease(Struct, frozen=True):
    """The right to write to one run. One process holds it at a time."""

    run: str
    owner: str
    """Name of the process that holds the lease, for `Store.gone`; empty in a `first_lease`."""
    epoch: int
    """A number that grows by at least one each time that the lease is taken."""
    head: int
    """Seq of the run's last entry when the lease was taken; 0 for a run without entries."""
    digest: bytes
    """Digest of the entry at `head`; 32 zero bytes for a run without entries."""
    lost: bool = False
    """Whether the previous holder did not release the lease, because its process ended or lost its connection."""


def first_lease(run: str) -> Lease:
    """Return a placeholder for the lease of a new run, for its first batch. It is neither acquired nor released."""
    return Lease(run, owner="", epoch=0, head=0, digest=GENESIS)


class Letter(Struct, frozen=True):
    """A message, approval or cancellation that waits in the inbox of a run until it becomes an entry."""

    run: str
    key: str
    """Key of the letter, unique within the run. A second letter with the same key is ignored, even after the first
    letter became an entry."""
    content: str
    """The content, encoded as JSON."""
    at: str = ""
    """Time at which the store received the letter, by the store's own clock; UTC, in the form of `Row.at`. A letter
    that `Batch.mail` brings keeps the time of the record from which it came."""
    id: int = 0
    """A number that the store assigns, each larger than the previous one. Letters become entries in this order."""


class Prune(Struct, frozen=True):
    """A run to be removed, with its entries, its blobs, its letters, and the keys of all letters sent to it."""

    lease: Lease
    """The lease of the run, held by the caller. If the run has entries after `lease.head`, it is not removed."""
    letters: Sequence[int] = ()
    """Ids of all letters that the caller found in the run's inbox. If another letter has arrived since, the run is not
    removed."""


class Batch(Struct, frozen=True):
    """The entries and changes that one commit writes into a run, all together or not at all."""

    lease: Lease
    head: int
    """Seq of the run's last entry before this batch; the batch's first row has the next seq."""
    rows: Sequence[Row]
    blobs: Sequence[BlobRow] = ()
    letters: Sequence[int] = ()
    """Ids of the inbox letters that became rows of this batch. The commit deletes them."""
    prunes: Sequence[Prune] = ()
    """Other runs that this commit removes. The batch must have rows, which record the removal."""
    synced: bool = False
    """Whether the commit, and all before it, must be on disk before `append` returns, even in a store that is opened
    with `normal`."""
    beside: Sequence["Batch"] = ()
    """Batches of other runs that are committed together with this batch. These batches contain only rows and blobs."""
    mail: Sequence[Letter] = ()
    """Letters of this run that waited in another record, from which the run moves here. They are added to the inbox in
    this order and keep their times: an answer that came before a deadline is not late because its run moved. A letter
    whose key was sent here before is ignored."""


class Statements(Protocol):
    """The interface by which a transactional tool executes SQL in the record's database, but not on Gesta's tables."""

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows."""

    def check(self) -> None:
        """Raise an error if the statements cannot be committed. `TransactionalEffect.work` calls this after the tool.

        The cause is always a statement of the tool: it ended the transaction, or broke a constraint that is checked at
        commit.
        """


class TransactionalEffect(Struct, frozen=True):
    """The effect of a tool on tables in the record's database. It is committed together with the entries about it."""

    run: str
    work: Callable[[Statements], tuple[Batch, bool]]
    """Executes the effect, in the thread that writes. Returns the entries, and whether to keep the tool's changes. With
    `False`, only the entries are committed. Before it returns `True`, it must call `check` on the statements. It must
    catch every exception of the tool, also `SystemExit` and `KeyboardInterrupt`."""
    timeout_s: float | None = None


class RunRow(Struct, frozen=True):
    """One run of a record: its id, its session, its name, and facts about its first and last entry."""

    run: str
    session: str
    name: str
    record: str
    parent_run: str | None
    at: str
    head: int
    """Seq of the run's last entry."""
    last_at: str
    """Time of the run's last entry."""
    pos: int
    """Pos of the run's first entry."""


def below(runs: Iterable[str], rows: Iterable[RunRow]) -> set[str]:
    """Return the ids of `runs` and of all runs below them: their children, the children of these, and so on.

    Args:
        rows: all runs, in any order. A child comes before its parent if it was copied earlier.
    """
    found, children = set[str](), defaultdict[str | None, list[str]](list)
    for row in rows:
        children[row.parent_run].append(row.run)
    waiting = list(runs)
    while waiting:
        run = waiting.pop()
        if run not in found:
            found.add(run)
            waiting += children[run]
    return found


class Table(Struct, frozen=True):
    """The result of a query: the names of its columns, and its rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class QueryBounds(Struct, frozen=True, kw_only=True):
    """Bounds of one SQL query of a user; `None` means no bound."""

    seconds: float | None = 600.0
    rows: int | None = None
    size_bytes: int | None = None
    """Greatest size of all texts and bytes in the result, which is held in memory."""

    def __post_init__(self) -> None:
        """Raise RecordError if a bound is not a number, or is negative."""
        for name in self.__struct_fields__:
            if (value := getattr(self, name)) is not None and not _counts(value):
                raise RecordError(f"QueryBounds({name}={value!r:.60}): expected a number from 0 on, or None.")

    def passed(self, query: str, name: str) -> RecordError:
        """Return the error for a query that exceeded a bound.

        Args:
            name: name of the field of this class with the bound.
        """
        most = getattr(self, name)
        found = {"seconds": "took longer than", "rows": "has more rows than", "size_bytes": "holds more bytes than"}
        return RecordError(
            f"Cannot answer {query!r:.2000}: it {found[name]} {most:,}. Ask for less, or raise it: gesta sql "
            f"--{name.partition('_')[0]} N, or gesta.open(…, queries=QueryBounds({name}=N))."
        )


def refuse_wrong(options: Mapping[str, Any]) -> None:
    """Raise RecordError for an option of `gesta.open` whose value is none of its values."""
    wanted: dict[str, tuple[Callable[[Any], bool], str]] = {
        **dict.fromkeys(("busy_s", "grace_s"), (_counts, "a number of seconds from 0 on")),
        "durability": (lambda value: value in ("synced", "normal"), "'synced' or 'normal'"),
        "readonly": (lambda value: isinstance(value, bool), "True or False"),
        "queries": (lambda value: isinstance(value, QueryBounds), "gesta.store.QueryBounds(...)"),
        "gone": (callable, "a function of the name of a process"),
    }
    for name, (fits, expected) in wanted.items():
        if name in options and not fits(options[name]):
            raise RecordError(f"gesta.open({name}={options[name]!r:.60}): expected {expected}.")


def _counts(value: Any) -> bool:
    """Return whether a value is a number that is not negative; NaN is not such a number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


class Foreign(Struct, frozen=True):
    """Objects in a file or schema that Gesta did not make, each described in words for people."""

    aside: Sequence[str] = ()
    """Triggers on Gesta's tables, and objects that have the names of Gesta's views. Gesta ignores them."""
    beside: Sequence[str] = ()
    """Tables of other programs in the same file or schema, with their indexes, triggers and views."""
    tools: Sequence[str] = ()
    """Tables that transactional tools made, as the record lists them, with their indexes, triggers and views."""
    shared: Sequence[str] = ()
    """Files of the record that other users of the machine may read or write, each with its mode."""


class Store(Protocol):
    """The interface of a place where a record is kept: a SQLite file, a PostgreSQL database, or memory."""

    queries: QueryBounds
    """Bounds of each query that `sql` executes."""

    @property
    def info(self) -> Info:
        """The identity of the store: its id, its address, and when it was made."""

    async def append(self, batch: Batch) -> int:
        """Commit a batch, together with the batches in `batch.beside`. Return the pos of the batch's last row.

        Rows get consecutive pos numbers. If the call is cancelled before the commit has begun, the cancellation is
        raised and nothing is committed. If it is cancelled later, it returns normally.

        Raises:
            LeaseLost: for one of the batches the lease is no longer held, or `head` is not the seq of the run's last
                entry. Nothing was committed.
            WriteFailed: nothing was committed.
            ValueError: the rows of a batch do not follow each other, so that a seq is missing.
        """

    async def transact(self, effect: TransactionalEffect) -> None:
        """Run the work of an effect in the record's database, and commit its changes and entries in one transaction.

        Other writes wait until the work is finished.

        Raises:
            LeaseLost, WriteFailed: as in `append`; nothing was committed.
            BaseException: any error of `effect.work`.
        """

    async def read(self, run: str, after: int = 0, until: int | None = None, limit: int | None = None) -> list[Row]:
        """Return rows of a run, sorted by seq: those with `after` < seq <= `until`, at most `limit` of them."""

    async def head(self, run: str) -> tuple[int, bytes]:
        """Return seq and digest of the last entry of a run; 0 and 32 zero bytes if there is no such run."""

    async def last(self) -> int:
        """Return the pos of the last entry; 0 for a record without entries."""

    async def runs(self, session: str | None = None, name: str | None = None) -> list[RunRow]:
        """Return the runs in the order in which they were opened. `session` and `name` select the runs that match."""

    async def get_blob(self, run: str, name: str) -> BlobRow:
        """Return a blob as stored. The caller checks whether the data match its name.

        Raises BrokenRecord for an unknown blob.
        """

    async def send(self, letter: Letter) -> bool:
        """Put a letter into a run's inbox; this needs no lease.

        Returns `False` if a letter with this key was sent before.
        """

    def deliver(self, letter: Letter) -> bool:
        """Put a letter into a run's inbox and commit it. Works in any thread, and after the event loop or store ended.

        Returns `False` if a letter with this key was sent before. Raises WriteFailed, and NoRecord if the record was
        deleted or existed in memory only.
        """

    async def inbox(self, run: str) -> list[Letter]:
        """Return the letters in a run's inbox that are not entries yet, in the order of their arrival."""

    async def lease(self, run: str, *, mirror: bool = False) -> Lease:
        """Acquire the lease of a run, the right to write to it.

        If the process that holds the lease has ended, the lease is taken over.

        Args:
            mirror: whether the run may be a mirror (a copy that only `push` writes).

        Raises:
            RunHeld: somebody else holds the lease, in this process or in another process that has not ended.
            RunMirrored: the run is a mirror of the same run in another record.
        """

    async def release(self, lease: Lease) -> None:
        """Release the lease of a run. If this process no longer holds the lease, do nothing.

        For this process the lease ends with this call, even if the call is cancelled or its commit fails. After a
        failed commit, other processes can acquire the lease only after a later commit of this process.
        """

    async def holds(self, lease: Lease) -> bool:
        """Return whether this process still holds a lease.

        A process that was suspended may have lost its lease without noticing.
        """

    async def mirror(self, lease: Lease, of: str | None) -> None:
        """Mark a run as a mirror (copy) of the same run in the record with id `of`; `None` removes the mark."""

    async def gone(self, process: str) -> bool | None:
        """Return whether a process has ended; `None` if nobody knows.

        Args:
            process: name of the process, as in `Lease.owner`. For this process itself the result is `False`.
        """

    async def declare_gone(self, process: str, by: str) -> None:
        """Record a person's statement that a process has ended. From then on `gone` returns `True` for it.

        Args:
            by: name of the person.
        """

    async def adopt(self, by: str) -> None:
        """Record a person's decision to use this store, a copy of another record, from now on.

        After that `info.mark`, which marks a copy, is `None`.

        Args:
            by: name of the person.
        """

    def keep(self) -> Callable[[], None]:
        """Make other processes see this process as running until the returned function is called, even after `close`.

        Threads of tools need this: they may run longer than the turn and the open record.
        """

    def descriptor(self) -> int | None:
        """Return a file descriptor that a subprocess can inherit; `None` if the store has none.

        As long as that subprocess runs, `gone` does not report this process as ended.
        """

    def tail(self, after: int = 0) -> AsyncGenerator[list[Row], None]:
        """Yield the rows of all runs after the pos `after`, without end: first the stored rows, then each new row."""

    async def sql(self, query: str, parameters: Sequence[Any] = ()) -> Table:
        """Execute a SQL query and return its rows and column names. A query that would write is refused."""

    async def shrink(self) -> int:
        """Free the space of pruned runs, and return by how many bytes the file or database became smaller.

        Raises:
            WriteFailed: other processes are using the store. Nothing is lost: later entries will use the free space.
        """

    async def damage(self) -> list[str]:
        """Return a text for each damage found in the file or database; an empty list if there is none.

        Cost: reads all of it.
        """

    async def foreign(self) -> Foreign:
        """Return what Gesta did not make in the file or database, such as tables of other programs."""

    async def close(self) -> None:
        """Close the store, and release its locks and connections. A closed SQLite record consists of one file."""
