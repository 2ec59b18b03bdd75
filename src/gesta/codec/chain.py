"""The digest of a row (a stored entry) covers the row's bytes and the previous row's digest.

So it covers all earlier rows, and nobody can change an old entry unnoticed. How the digest is computed never changes.
The content of a row is the data of the entry, and its annotations are named values that a program added.
"""

from hashlib import sha256

import msgspec

from gesta.entry import Row

_HEADERS = msgspec.json.Encoder()


def seal(salt: bytes, content: str, annotations: str | None) -> bytes:
    """Return the digest (32 bytes) of the content and annotations of a row.

    If content and annotations are erased, this digest stays. This function must never change: existing records depend
    on it.

    Args:
        salt: random bytes of the row, so that nobody can guess an erased content from the digest.
    """
    return sha256(b"%b%b\0%b" % (salt, content.encode(), annotations.encode() if annotations else b"")).digest()


def link(prev: bytes, row: Row, sealed: bytes | None = None) -> bytes:
    """Return the digest (32 bytes) of a row, computed from the previous digest. This function must never change.

    Args:
        prev: the digest of the previous row.
        sealed: for an erased row, the digest that `seal` returned before; `None` to compute it.
    """
    header = row.run, row.seq, row.kind, row.at, row.span, msgspec.Raw(row.causes), row.version
    sealed = seal(row.salt, row.content, row.annotations) if sealed is None else sealed
    return sha256(prev + sha256(_HEADERS.encode(header)).digest() + sealed).digest()


def verify(row: Row, prev: bytes, sealed: bytes | None = None) -> bool:
    """Return whether a row is unchanged since it was written after the row with the digest `prev`.

    Args:
        sealed: for an erased row, the digest of its content and annotations; else `None`. The erased part cannot be
            checked.
    """
    try:
        # fixed sizes, so that no byte can move from one part to another
        sizes = len(prev), len(row.salt) * 2 if sealed is None else len(sealed)
        parted = sealed is None and (row.annotations == "" or "\0" in row.content)  # same bytes, other columns
        return sizes == (32, 32) and not parted and link(prev, row, sealed) == row.digest
    except (AttributeError, TypeError, ValueError):  # a column holds a value of a wrong type, or no text
        return False
