"""A large value is stored beside the rows that use it, under a salted hash as its name.

Because of the salt, an erased value cannot be guessed from its name. The salt is new for every blob, so equal values
have the same name only if one writer of one run stored them. It has 16 bytes in every blob, so that no byte of the
value can be moved into the salt under the same name. The digest of every row that uses the blob covers the name.
"""

from collections.abc import Callable
from hashlib import sha256
from secrets import token_bytes

from gesta.codec.rows import LARGE

__all__ = ["LARGE", "SALT", "Blobs", "blob_name", "intact"]

SALT = 16
"""The number of bytes in the salt of each blob."""

REMEMBERED = 4096
"""The number of values that one `Blobs` recognizes. Older values are forgotten, and stored twice if they come again."""


def blob_name(salt: bytes, data: bytes) -> str:
    """Return the name of a blob: SHA-256(salt + data) in hex."""
    return sha256(salt + data).hexdigest()


def intact(name: str, salt: bytes, data: bytes) -> bool:
    """Return whether a blob has the name that its salt and data give."""
    return len(salt) == SALT and blob_name(salt, data) == name


class Blobs:
    """The large values of one run that one writer has met, each kept once."""

    def __init__(self, salt: Callable[[], bytes] = lambda: token_bytes(SALT)) -> None:
        self._salt = salt
        self._names: dict[bytes, str] = {}
        self.fresh: list[tuple[str, bytes, bytes]] = []
        """Blobs that `take` has not returned yet: name, salt and data."""

    def keep(self, data: bytes) -> str:
        """Return the name of a value's blob; the next `take` returns a blob that is new."""
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
