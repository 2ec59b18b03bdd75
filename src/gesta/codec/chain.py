"""The digest of a row covers its bytes and, by the digest of the row before it, all rows before. Frozen for ever."""

from hashlib import sha256

import msgspec

from gesta.entry import Row

_HEADERS = msgspec.json.Encoder()


def seal(salt: bytes, content: str, annotations: str | None) -> bytes:
    """Return the digest of the part that can be erased, 32 bytes that stay when it is erased. Frozen for ever."""
    return sha256(b"%b%b\0%b" % (salt, content.encode(), annotations.encode() if annotations else b"")).digest()


def link(prev: bytes, row: Row, sealed: bytes | None = None) -> bytes:
    """Return the digest of a row and all rows before it, 32 bytes.

    `sealed`: the seal of an erased row. Frozen for ever.
    """
    header = row.run, row.seq, row.kind, row.at, row.span, msgspec.Raw(row.causes), row.version
    sealed = seal(row.salt, row.content, row.annotations) if sealed is None else sealed
    return sha256(prev + sha256(_HEADERS.encode(header)).digest() + sealed).digest()


def verify(row: Row, prev: bytes, sealed: bytes | None = None) -> bool:
    """Return whether a row has the bytes that were written after `prev`; of an erased row, its header is checked."""
    try:
        # of fixed size, so that no byte can move between the parts
        sizes = len(prev), len(row.salt) * 2 if sealed is None else len(sealed)
        parted = sealed is None and (row.annotations == "" or "\0" in row.content)  # the same bytes, in other columns
        return sizes == (32, 32) and not parted and link(prev, row, sealed) == row.digest
    except (AttributeError, TypeError, ValueError):  # a column holds another type, or what is no text
        return False
