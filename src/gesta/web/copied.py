"""Asks the viewer for everything that the pages show about one run, for a copy that opens without a server.

A run is a list of entries, and a seq is the number of an entry in its run. Each generator yields pairs: the address of
a request, relative to the address of the run, and the bytes of the answer. Long answers are requested in several parts,
as the browser does. If the viewer refuses a request, its answer is `null`. The lines, files and explanations of a run
are not here: `folder` asks for them itself.

A form is the run as another system would log it. `said` is a function that sends one request to the viewer.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from msgspec import Struct

from gesta.compat.forms import FORMS
from gesta.errors import GestaError
from gesta.web.forms import WHY

ROWS = 200
"""Number of rows of a form that a page asks for at once."""
MESSAGES = 50
"""Number of messages of a request that a page asks for at once."""
SENT_BYTES = 20_000_000
"""Once the copied model requests have this many bytes, earlier requests of the run are left out."""

Said = Callable[[str], Awaitable[bytes]]
Answers = AsyncIterator[tuple[str, bytes]]


class Room(Struct):
    """A count of the copied bytes of model requests, and of the model requests that were left out."""

    taken: int = 0
    left_out: int = 0


async def timeline(said: Said) -> Answers:
    """Yield the answers about a run's timeline, and about the runs that it started."""
    yield "time", await _asked(said, "time")
    after, number = 0, 1
    while after < number:
        address = f"children?after={after}" if after else "children"
        answer = await _asked(said, address)
        yield address, answer
        found = json.loads(answer) or {"children": [], "count": 0}
        number = found["count"] if found["children"] else 0
        after += len(found["children"])


async def forms(said: Said) -> Answers:
    """Yield the answers about a run in each form: the table of rows, and the JSON lines that a person can save."""
    for name in (*FORMS, WHY):
        after, total = 0, 1
        while after < total:
            address = f"forms/{name}?{f'after={after}&' if after else ''}limit={ROWS}"
            answer = await _asked(said, address)
            yield address, answer
            found: dict[str, Any] = json.loads(answer) or {"rows": [], "total": 0}
            for place, row in enumerate(found["rows"], after):
                if "characters" in row:
                    yield f"forms/{name}/rows/{place}", await _asked(said, f"forms/{name}/rows/{place}")
            total = found["total"] if found["rows"] else 0
            after += len(found["rows"])
        yield f"forms/{name}/lines", await _asked(said, f"forms/{name}/lines")


async def sent(said: Said, head: int, room: Room) -> Answers:
    """Yield the answers about the requests that a run sent to its model: their list, and the newest of them in full.

    Args:
        head: seq of the last entry. If the run has no request, `head` stands for the request that would be sent next.
        room: counts the copied bytes. Once these are more than `SENT_BYTES`, earlier requests are left out.
    """
    seqs, total = list[int](), 1
    while len(seqs) < total:
        after = max(0, len(seqs) - 1)
        address = f"requests?after={after}" if after else "requests"
        answer = await _asked(said, address)
        yield address, answer
        found = json.loads(answer) or {"requests": [], "total": 0}
        total = found["total"] if found["requests"] else 0
        seqs[after:] = [each["seq"] for each in found["requests"]]
    for seq in reversed(seqs or [head]):
        full = room.taken <= SENT_BYTES
        room.left_out += not full
        answer = await _asked(said, f"requests/{seq}") if full else b"null"
        yield f"requests/{seq}", answer
        facts = json.loads(answer)
        if facts is not None:
            async for address, each in _whole(said, seq, facts):
                room.taken += len(each)
                yield address, each


async def _whole(said: Said, seq: int, facts: dict[str, Any]) -> Answers:
    """Yield the answers about one model request: its settings and tools, its messages, its body as text and as bytes.

    Args:
        seq: seq of the request.
        facts: the viewer's answer about the request, which states the number of its messages.
    """
    at = f"requests/{seq}"
    yield f"{at}/header", await _asked(said, f"{at}/header")
    for number in range(-(-facts["messages"] // MESSAGES)):
        asked = f"{at}/messages?after={number * MESSAGES}&limit={MESSAGES}"
        yield f"{at}/messages/{number}", await _asked(said, asked)
    shown, characters = 0, 1
    while shown < characters:
        address = f"{at}/wire?after={shown}" if shown else f"{at}/wire"
        answer = await _asked(said, address)
        yield address, answer
        wire = json.loads(answer) or {"body": ""}
        characters = wire.get("characters", characters) if wire["body"] else 0
        shown += len(wire["body"])
    yield f"{at}/body", await _asked(said, f"{at}/body")


async def _asked(said: Said, address: str) -> bytes:
    try:
        return await said(address)
    except GestaError:
        return b"null"
