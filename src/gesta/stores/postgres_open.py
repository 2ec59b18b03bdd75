"""Opens a record in PostgreSQL: its address, its connections, and the server's errors as errors of Gesta.

A record (the stored history of all runs) has a schema of its own: `gesta`, or NAME if the address has `?schema=NAME`.
So a database can hold other tables and other records too.

A restored backup, or a copy on another server, is a copy of a record. The `mark` of a copy is the pos (number) of its
last entry. The mark is removed when a person adopts the copy, that is, decides that it replaces the original.

A process can be cut off by a cut cable or a frozen machine. Then its transaction is undone after `STALLED_S` seconds,
and its leases (rights to write runs) are free after `EXPIRY_S` seconds. If a process ends or is killed, both happen at
once.
"""

import re
from contextlib import suppress
from typing import Any

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gesta.entry import utc_text
from gesta.errors import (
    BadAddress,
    BrokenRecord,
    NewerRecord,
    NoRecord,
    RecordBusy,
    RecordError,
    ServerGone,
    WriteFailed,
)
from gesta.log.journal import utc_now
from gesta.store import Info
from gesta.stores.common import milliseconds, new_id
from gesta.stores.postgres_door import admit
from gesta.stores.postgres_tables import ADD_RECORD, DROP_VIEWS, MARK, MIGRATIONS, TABLES, VIEWS, VIEWS_DIGEST
from gesta.stores.tables import FORMAT
from gesta.text.redactor import SECRETS, scrub

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMA = "gesta"
STALLED_S = 5  # the server ends a transaction in which a writer is silent for so many seconds
BUSY_S = 60.0  # seconds to wait for other writers, and for a server that cannot be reached
CONNECT_S = 10
IDLE_S, EVERY_S, TIMES = 10, 5, 4  # keepalive: seconds of silence before the first probe, between probes; their number
EXPIRY_S = IDLE_S + EVERY_S * TIMES
"""Seconds after which the server ends the session of a process that is cut off. Then it is regarded as ended."""

CLIENT: dict[str, str | int] = {
    "connect_timeout": CONNECT_S,
    "fallback_application_name": "gesta",
    "client_encoding": "UTF8",
    "keepalives_idle": IDLE_S,
    "keepalives_interval": EVERY_S,
    "keepalives_count": TIMES,
    "tcp_user_timeout": 1000 * EXPIRY_S,
}
"""Default parameters of a connection, which an address may override."""

SESSION = f"""SET tcp_keepalives_idle = {IDLE_S};
SET tcp_keepalives_interval = {EVERY_S};
SET tcp_keepalives_count = {TIMES};
SET tcp_user_timeout = {1000 * EXPIRY_S};
SET idle_in_transaction_session_timeout = '{STALLED_S}s';
SET idle_session_timeout = 0;
SET default_transaction_isolation = 'read committed';
SET bytea_output = 'hex';
SET standard_conforming_strings = on;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"""
"""Settings of the server for a connection. With them the server notices within `EXPIRY_S` that its client is gone."""

WORDS: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.DiskFull, "the server's disk is full"),
    (errors.OutOfMemory, "the server has no memory left"),
    (errors.TooManyConnections, "the server has no connection left"),
    (errors.LockNotAvailable, "others have been writing to it without a pause"),
    (errors.InvalidPassword, "the server does not take this password"),
    (errors.InvalidAuthorizationSpecification, "the server does not let this user in"),
    (errors.InvalidCatalogName, "there is no such database"),
    (errors.InsufficientPrivilege, "this user has no right to it"),
    (errors.ReadOnlySqlTransaction, "this server or user can only read"),
    (errors.AdminShutdown, "the server ended the connection"),
    (errors.CrashShutdown, "the server broke down"),
    (errors.CannotConnectNow, "the server is starting or stopping"),
    (errors.IdleInTransactionSessionTimeout, f"this process stood still for {STALLED_S} seconds in a commit"),
    (errors.QueryCanceled, "it was cancelled, or took longer than the server allows"),
    (errors.DataCorrupted, "its pages are damaged"),
    (errors.IndexCorrupted, "an index of it is damaged"),
    (errors.UndefinedTable, "its tables are not those of a record"),
    (errors.UndefinedColumn, "its tables are not those of a record"),
    (errors.InvalidSchemaName, "its schema is gone"),
    (psycopg.errors.ConnectionTimeout, f"no connection within {CONNECT_S} seconds"),
    (psycopg.DataError, "a value is none that PostgreSQL can hold"),
    (psycopg.IntegrityError, "it does not fit what stands there"),
    (psycopg.NotSupportedError, "this server cannot do it; PostgreSQL 15 to 18 can"),
    (psycopg.OperationalError, "it is away, refused this user, or was lost"),
    (psycopg.InterfaceError, "the connection is no longer usable"),
    (psycopg.InternalError, "the server failed"),
    (psycopg.ProgrammingError, "the server does not understand what is asked of it"),
    (psycopg.DatabaseError, "the server refused it"),
    (psycopg.Error, "the connection cannot be used"),
)
AWAY = (
    *(errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleInTransactionSessionTimeout),
    *(errors.ConnectionTimeout, errors.TooManyConnections, errors.IdleSessionTimeout, psycopg.InterfaceError),
)
"""Errors of a server that cannot be reached now. An OperationalError without an SQL state is one too; see `kind_of`."""
DAMAGED = (errors.DataCorrupted, errors.IndexCorrupted)
FOREIGN = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)


class Place(Struct, frozen=True):
    """The place of a record: how to connect to the database, and the schema in it."""

    conninfo: str
    schema: str
    address: str
    """The address without its password, for messages."""
    busy_s: float = BUSY_S


def located(address: str, busy_s: float = BUSY_S) -> Place:
    """Return the place that an address names. `busy_s` is how long a lost server is tried. Raises BadAddress."""
    base, _, query = address.partition("?")
    parts = [part for part in query.split("&") if part]
    schemas = [part.partition("=")[2] for part in parts if part.startswith("schema=")]
    plain = "&".join(part for part in parts if not part.startswith("schema="))
    schema = schemas[-1] if schemas else SCHEMA
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise BadAddress(f"No schema can be named {schema!r}: letters a to z, digits and _, at most 63.")
    shown = "&".join(part for part in parts if not re.match(r"(ssl)?password=", part))
    bare = SECRETS.address(base).replace(":***@", "@")
    try:
        given = conninfo_to_dict(base + (f"?{plain}" if plain else ""))
    except psycopg.ProgrammingError as error:
        raise BadAddress(
            f"{bare!r} is not an address of a PostgreSQL database ({type(error).__name__}). "
            "One looks like postgresql://user@host:5432/database."
        ) from None  # its message may hold the password
    missing = {name: value for name, value in CLIENT.items() if name not in given}
    conninfo = make_conninfo(base + (f"?{plain}" if plain else ""), **missing)
    return Place(conninfo, schema, bare + (f"?{shown}" if shown else ""), busy_s)


def told(error: Exception, address: str, *, writing: bool) -> RecordError:
    """Return Gesta's error for an error of psycopg. The caller raises it `from` that error.

    Args:
        writing: whether the failed call was a write.
    """
    words = next((words for kind, words in WORDS if isinstance(error, kind)), type(error).__name__)
    scrub(error)
    first = next(iter(str(error).splitlines()), "")
    found = f"{words} ({first})" if first else words
    if isinstance(error, DAMAGED + FOREIGN):
        return BrokenRecord(address, found)
    kind = kind_of(error)
    if writing or kind is ServerGone:
        return kind(address, found)
    return RecordError(f"Could not read {address!r}: {found}.")


def kind_of(error: Exception) -> type[WriteFailed]:
    """Return the class of error for a failed write: RecordBusy, ServerGone, or WriteFailed for all other failures."""
    if isinstance(error, errors.LockNotAvailable):
        return RecordBusy
    unsaid = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    return ServerGone if unsaid or isinstance(error, AWAY) else WriteFailed


def connect(place: Place, *, readonly: bool) -> Connection:
    """Open a connection whose search path is the record's schema. Raises psycopg.Error.

    Cost: 5 ms, and more by network.
    """
    connection = psycopg.connect(place.conninfo, autocommit=True, cursor_factory=psycopg.RawCursor)
    try:
        connection.execute(SESSION)
        # pg_temp comes last, else a temporary table of a tool could hide a table of the record
        connection.execute(sql.SQL("SET search_path = {}, pg_temp").format(sql.Identifier(place.schema)))
        connection.execute(f"SET lock_timeout = {milliseconds(place.busy_s)}")
        if readonly:
            connection.execute("SET default_transaction_read_only = on")
    except BaseException:
        connection.close()
        raise
    return connection


def allow_role(connection: Connection, place: Place, role: str) -> None:
    """Check that the statements of tools can run under a role, which must not be able to change Gesta's tables.

    Raises:
        psycopg.Error: there is no such role, or this user may not use it.
        WriteFailed: the role may write Gesta's own tables.
    """
    with connection.transaction():
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
    query = "SELECT has_table_privilege($1, format('%I.entries', $2::text), 'INSERT, UPDATE, DELETE')"
    if connection.execute(query, (role, place.schema)).fetchall() == [(True,)]:
        raise WriteFailed(
            place.address, f"the role {role!r} (`tool_role`) may change the record's own tables; name one that may not"
        )


def standing(connection: Connection) -> bool:
    """Return whether an idle connection seems to be still open, without asking the server.

    Cost: 2 us.
    """
    try:
        for _ in range(2):  # the first call reads the server's last message, the second the end of the connection
            connection.pgconn.consume_input()
    except psycopg.Error:
        connection.close()
    return not connection.closed


def number(name: str) -> int:
    """Return the number of the advisory lock for a record's id or a process's name: its first 16 hex digits."""
    return int.from_bytes(bytes.fromhex(name[:16]), "big", signed=True)


def there(connection: Connection, place: Place) -> bool:
    """Return whether there is a record in the schema that a place names. Raises psycopg.Error."""
    query = """SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = $1 AND relname = 'record'"""  # to_regclass may return a cached "no"
    return bool(connection.execute(query, (place.schema,)).fetchall())


def make(connection: Connection, place: Place, info: Info) -> None:
    """Create the schema and tables of the record `info` in one transaction, unless another process has made them.

    Raises psycopg.Error.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"gesta {place.schema}",))
        if there(connection, place):
            return
        known = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = $1", (place.schema,)).fetchall()
        if not known:  # CREATE SCHEMA IF NOT EXISTS would need the right to create one even then
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(place.schema)))
        connection.execute(TABLES)
        connection.execute(ADD_RECORD, (info.id, FORMAT, info.created_at))
        put_views(connection)


def put_views(connection: Connection) -> None:
    """Replace the views in the record with those of this release. Raises psycopg.Error."""
    connection.execute(DROP_VIEWS)
    connection.execute(VIEWS)
    connection.execute("UPDATE record SET views = $1", (VIEWS_DIGEST,))


class Found(Struct, frozen=True):
    """The identity of a record, the version of its tables, and the server where it was made or adopted."""

    info: Info
    format: int
    server: str | None
    """Where the record was made, adopted, or marked as a copy, as `server_of` returns it."""
    current: bool
    """Whether the record has the views of this release."""


def identity(connection: Connection, place: Place) -> Found:
    """Return the identity of the record at a place.

    Raises:
        psycopg.Error: the schema cannot be read.
        NoRecord: there is no record at this place.
        BrokenRecord: the tables are not those of a record, or hold objects that Gesta did not make.
        NewerRecord: a later release made it.
    """
    if not there(connection, place):
        raise NoRecord(place.address)
    admit(connection, place.schema, place.address)
    try:
        rows = connection.execute("SELECT to_jsonb(record) FROM record").fetchall()
    except FOREIGN as error:
        raise told(error, place.address, writing=False) from error
    if not rows:
        raise BrokenRecord(place.address, "it has lost its own id")
    ((one,),) = rows
    if not {"id", "created_at", "format"} <= one.keys():
        raise BrokenRecord(place.address, "its tables are not those of a record")
    if one["format"] > FORMAT:
        raise NewerRecord(repr(place.address), one["format"], FORMAT)
    info = Info(one["id"], place.address, one["created_at"], one.get("mark"), "postgresql")
    return Found(info, one["format"], one.get("server"), one.get("views") == VIEWS_DIGEST)


SERVER = """SELECT (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END,
    (SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass($1)::oid"""


def server_of(connection: Connection, place: Place) -> str | None:
    """Return a text that differs for each place: the ids of server, timeline, database, and the table `record`.

    `None` if this user may not read them.
    """
    with suppress(errors.InsufficientPrivilege, errors.UndefinedFunction, psycopg.NotSupportedError):
        rows = connection.execute(SERVER, (f'"{place.schema}".record',)).fetchall()
        return "/".join(map(str, rows[0]))
    return None


def copied(here: str | None, known: str | None, *, failover: bool) -> bool:
    """Return whether a record is a copy: its present place differs from the place where it was made or adopted.

    Args:
        here: the present place, as `server_of` returns it; `None` if it is not known, and then the result is `False`.
        known: the place that is stored in the record.
        failover: whether the record stays the original when its server, or the server's timeline, changes.
    """
    if here is None or known is None:
        return False
    return here.split("/")[2:] != known.split("/")[2:] if failover else here != known


def marked(connection: Connection, place: Place, *, failover: bool, found: Found | None = None) -> Info:
    """Return the identity of a record. If the record was copied to this place, its `mark` is stored first.

    Args:
        found: the result of `identity` on this connection; `None` to ask the server. failover: see `copied`.

    Raises:
        psycopg.Error, NoRecord, BrokenRecord, NewerRecord: as `identity`.
    """
    found, here = found or identity(connection, place), server_of(connection, place)
    if here is None or here == found.server:
        return found.info
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1)", (number(found.info.id),))
        ((known,),) = connection.execute("SELECT server FROM record").fetchall()  # perhaps another process was faster
        if marking := copied(here, known, failover=failover):
            connection.execute(MARK)
        connection.execute("UPDATE record SET server = $1", (here,))
    return identity(connection, place).info if marking or known != found.server else found.info


def seen(connection: Connection, place: Place) -> Info:
    """Return the identity of a record for a process that only reads.

    For a copy, the result has a `mark`, which is not written to the server.

    Raises the errors of `identity`.
    """
    found = identity(connection, place)
    if not copied(server_of(connection, place), found.server, failover=False):
        return found.info
    ((last,),) = connection.execute("SELECT max(pos) FROM entries").fetchall()
    return replace(found.info, mark=last if last is not None else found.info.mark)


def migrate(connection: Connection, place: Place) -> None:
    """Change the tables of a record from format 1 to format 2, in one transaction.

    Raises:
        WriteFailed: a process of an older release is writing the record. psycopg.Error: the server refused the change.
    """
    with connection.transaction():
        record = identity(connection, place)
        connection.execute("SELECT pg_advisory_xact_lock($1)", (number(record.info.id),))
        if identity(connection, place).format == FORMAT:
            return
        for owner, process, host in connection.execute("SELECT owner, process, host FROM owners").fetchall():
            if not connection.execute("SELECT 1 WHERE pg_try_advisory_xact_lock($1)", (number(owner),)).fetchall():
                raise WriteFailed(place.address, f"process {process} on {host}, of an older release, is writing it")
        for statement in MIGRATIONS:
            connection.execute(statement)
        put_views(connection)
        connection.execute("UPDATE record SET format = $1", (FORMAT,))


def prepared(connection: Connection, place: Place, *, failover: bool) -> Info:
    """Return the identity of a record for a process that writes.

    A missing record is created. A record of format 1 is first migrated to format 2. For `failover`, see `copied`.

    Raises the errors of `identity`.
    """
    try:
        found = identity(connection, place)
    except NoRecord:
        make(connection, place, Info(new_id(), place.address, utc_text(utc_now()), sql="postgresql"))
        found = identity(connection, place)
    if found.format < FORMAT:
        migrate(connection, place)
        return marked(connection, place, failover=failover)
    if not found.current:  # without the right to replace views, or with a wait for it, the old views are used
        with suppress(errors.InsufficientPrivilege, errors.LockNotAvailable), connection.transaction():
            put_views(connection)
    return marked(connection, place, failover=failover, found=found)
