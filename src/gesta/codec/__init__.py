"""Converts entries (stored facts of a run) into rows (their stored form) and back.

The package also computes canonical bytes and digests, and stores large values outside of the rows.
"""

from gesta.codec.chain import link, seal, verify
from gesta.codec.rows import canonical, decode_content, digest_of, encode_content

__all__ = ["canonical", "decode_content", "digest_of", "encode_content", "link", "seal", "verify"]

ORDER = (
    "upcasts",
    "chain",
    "rows",
    "blobs",
    "runs",
    "fitting",
)
"""Files in reading order: each imports only files before it."""
