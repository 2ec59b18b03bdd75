"""Drives one recorded conversation on a record and a world that stay: what the kill test kills and starts again.

`python -m benchmarks.retail.child FILE PLACE RECORD WORLD` prints `ready` before the first message and `done` at the
end. Run again after a kill, it sends the same messages under the same keys.
"""

import sys
from pathlib import Path

import anyio

import gesta
from benchmarks.retail.corpus import load_conversations
from benchmarks.retail.drive import converse
from benchmarks.retail.world import World


async def main(file: str, place: int, record: str, world: str) -> None:
    """Drive the conversation at `place` of a file to its end."""
    conversation = load_conversations(file)[place]
    async with gesta.open(record) as opened:
        with World(Path(world), "FULL") as open_world:
            print("ready", flush=True)
            await converse(opened, conversation, open_world)
    print("done", flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
