"""The digest of a row covers its bytes and the digest of the row before it, and so all rows before. Never changes."""

from hashlib import sha256

import msgspec

from gesta.entry import Row

_HEADERS = msgspec.json.Encoder()


def seal(salt: bytes, content: str, annotations: str | None) -> bytes:
    """Return the digest, 32 bytes, of the part of a row that can be erased.

    The digest is kept after the part is erased. This function never changes: old records were made with it.
    """
    return sha256(b"%b%b\0%b" % (salt, content.encode(), annotations.encode() if annotations else b"")).digest()


def link(prev: bytes, row: Row, sealed: bytes | None = None) -> bytes:
    """Return the digest of a row and all rows before it, 32 bytes. This function never changes.

    Args:
        prev: the digest of the row before.
        sealed: the seal of an erased row.
    """
    header = row.run, row.seq, row.kind, row.at, row.span, msgspec.Raw(row.causes), row.version
    sealed = seal(row.salt, row.content, row.annotations) if sealed is None else sealed
    return sha256(prev + sha256(_HEADERS.encode(header)).digest() + sealed).digest()


def verify(row: Row, prev: bytes, sealed: bytes | None = None) -> bool:
    """Return whether a row is unchanged since it was written after the row with digest `prev`.

    Args:
        sealed: the seal of an erased row, of which only the header is checked.
    """
    try:
        # of fixed size, so that no byte can move between the parts
        sizes = len(prev), len(row.salt) * 2 if sealed is None else len(sealed)
        parted = sealed is None and (row.annotations == "" or "\0" in row.content)  # the same bytes, in other columns
        return sizes == (32, 32) and not parted and link(prev, row, sealed) == row.digest
    except (AttributeError, TypeError, ValueError):  # a column holds another type, or what is no text
        return False
