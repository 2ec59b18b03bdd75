"""Converts entries (stored facts of a run) into rows (their stored form) and back.

It also computes digests, and stores large values beside the rows.
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
