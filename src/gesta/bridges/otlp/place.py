"""The stored place of an exporter: the entry up to which a record was sent, and the metrics up to there.

The place is a small file, which is always replaced as a whole. The file contains the digest of that entry. If the
record was restored from a backup and then got other entries, the digest differs, and the record is sent again from its
first entry.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from gesta.bridges.otlp.metrics import Point
from gesta.bridges.otlp.settings import TracingError
from gesta.store import Store


class Place(Struct, kw_only=True):
    """How far an exporter has sent a record: the last entry whose spans were sent, and the metrics up to it."""

    record: str
    """Id of the record."""
    pos: int = 0
    digest: str = ""
    """Digest of the entry at position `pos` of the record, in hex."""
    since: float = 0.0
    """Start of the time in which the metrics were counted, in seconds since 1970."""
    points: list[Point] = []


def place_file(store: Store, endpoint: str, given: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the file that stores a place: `given`, or a file for this record and endpoint.

    A file for the record and endpoint is in the folder GESTA_STATE, or else in `gesta` under XDG_STATE_HOME, or else in
    `~/.local/state/gesta`.
    """
    if given is not None:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(os.environ.get("GESTA_STATE") or Path(state) / "gesta")
    return folder / "traces" / f"{store.info.id}-{hashlib.sha256(endpoint.encode()).hexdigest()[:8]}.json"


def load(path: Path, record: str) -> Place:
    """Read a place from a file.

    Returns a place before the first entry if there is no such file, or if the file belongs to another record.

    Raises:
        TracingError: the file cannot be read.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Place)
    except FileNotFoundError:
        return Place(record=record)
    except (OSError, msgspec.MsgspecError) as failure:
        raise TracingError(
            f"The place of the exporter cannot be read from {str(path)!r}: {failure}. Remove that file, and everything "
            "on record is sent once more."
        ) from failure
    return found if found.record == record else Place(record=record)


def save(path: Path, place: Place, points: Sequence[Point]) -> None:
    """Write a place and its metrics to a file. Raises TracingError if that fails; the old file then stays as it was."""
    place.points = list(points)
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(place))
        beside.replace(path)
    except OSError as failure:
        with suppress(OSError):
            beside.unlink()
        raise TracingError(
            f"The place of the exporter cannot be written to {str(path)!r}: {failure.strerror or failure}. "
            "Name another file: --place FILE, or place=."
        ) from failure
