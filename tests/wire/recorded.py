"""Traffic that others recorded of the providers: which exchanges a corpus holds, and their bytes."""

import gzip
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest


def recorded(corpus: Path, mark: bytes) -> Iterator[tuple[str, Any]]:
    """Return the exchanges of every cassette that holds `mark`, each with the cassette's name in its archive."""
    yaml = pytest.importorskip("yaml", reason="corpus absent: cassettes need PyYAML, which comes with gesta[docs]")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted((corpus / "cassettes").rglob("*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith((".yaml", ".yml")) else None
                text = file.read() if file is not None else b""
                if mark in text:
                    interactions = yaml.load(text, loader)["interactions"]
                    yield from ((member.name, one) for one in interactions if "request" in one)


def body_of(side: Mapping[str, Any]) -> bytes:
    """Return the bytes of a body, from the three forms in which recorders write it."""
    if (parsed := side.get("parsed_body")) is not None:
        return json.dumps(parsed).encode()
    body = side.get("body") or b""
    data: bytes | str = body["string"] if isinstance(body, dict) else body
    data = data.encode() if isinstance(data, str) else data
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
