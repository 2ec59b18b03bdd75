"""A large value lies beside the rows that use it, named by a salted hash.

The salt keeps a value that was erased from being guessed by its name; since it is fresh for every blob, equal values
have one name only where one writer of one run kept them. It has 16 bytes in every blob, so that no byte of the value
can be moved into it under the same name. The name is in the digest of every row that uses the blob.
"""

from collections.abc import Callable
from hashlib import sha256
from secrets import token_bytes

from gesta.codec.rows import LARGE

__all__ = ["LARGE", "SALT", "Blobs", "blob_name", "intact"]

SALT = 16
"""Bytes of the salt of each blob."""

REMEMBERED = 4096
"""Values that one collector knows again; of more, the oldest are forgotten and, if they come again, kept twice."""


def blob_name(salt: bytes, data: bytes) -> str:
    """Name a blob: SHA-256(salt + data) in hex."""
    return sha256(salt + data).hexdigest()


def intact(name: str, salt: bytes, data: bytes) -> bool:
    """Return whether a blob is the one that its name was made of."""
    return len(salt) == SALT and blob_name(salt, data) == name


class Blobs:
    """The large values of one run that one writer has met, each kept once."""

    def __init__(self, salt: Callable[[], bytes] = lambda: token_bytes(SALT)) -> None:
        self._salt = salt
        self._names: dict[bytes, str] = {}
        self.fresh: list[tuple[str, bytes, bytes]] = []
        """Those that `take` has not handed out: name, salt and data."""

    def keep(self, data: bytes) -> str:
        """Return the name of a value's blob; a new one waits in `take`."""
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
        """Return (name, salt, data) of each blob that came since the last call, in order.

        Only names are kept after that.
        """
        fresh, self.fresh = self.fresh, []
        return fresh
