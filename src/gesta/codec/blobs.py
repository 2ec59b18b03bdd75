"""A large value (a blob) is stored beside the rows that use it. Its name is a hash of a salt and the value.

Because of the salt, nobody can guess an erased value from its name. Each blob has a new salt. So equal values share a
blob only if one writer stored them in one run. The salt always has 16 bytes: otherwise bytes could be moved from the
value into the salt without changing the name. The digest of every row that uses the blob covers the blob's name.
"""

from collections.abc import Callable
from hashlib import sha256
from secrets import token_bytes

from gesta.codec.rows import LARGE

__all__ = ["LARGE", "SALT", "Blobs", "blob_name", "intact"]

SALT = 16
"""The number of bytes in the salt of each blob."""

REMEMBERED = 4096
"""Number of values that one `Blobs` object remembers. A value that comes again after that is stored a second time."""


def blob_name(salt: bytes, data: bytes) -> str:
    """Return the name of a blob: SHA-256(salt + data) in hex."""
    return sha256(salt + data).hexdigest()


def intact(name: str, salt: bytes, data: bytes) -> bool:
    """Return whether a blob is unchanged: its name is the hash of its salt and data."""
    return len(salt) == SALT and blob_name(salt, data) == name


class Blobs:
    """The large values that one writer has stored in one run. Equal values are stored once."""

    def __init__(self, salt: Callable[[], bytes] = lambda: token_bytes(SALT)) -> None:
        self._salt = salt
        self._names: dict[bytes, str] = {}
        self.fresh: list[tuple[str, bytes, bytes]] = []
        """Blobs that `take` has not returned yet: name, salt and data."""

    def keep(self, data: bytes) -> str:
        """Return the name of a value's blob. If the blob is new, the next `take` returns it."""
        plain = sha256(data).digest()
        name = self._names.get(plain)
        if name is None:
            salt = self._salt()
            name = self._names[plain] = blob_name(salt, data)
            self.fresh.append((name, salt, data))
            if len(self._names) > REMEMBERED:
                del self._names[next(iter(self._names))]
        return name

    def take(self) -> list[tuple[str, bytes, bytes]]:
        """Return the blobs that are new since the last call, in order, as (name, salt, data).

        After that, this object keeps only their names.
        """
        fresh, self.fresh = self.fresh, []
        return fresh
