"""Files of every format that can be imported: damaged, compressed, and imported into a record."""

import gzip
import io
import json
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import anyio

import gesta
from benchmarks.fuzz.mutating import hostile, spoilt, twisted
from benchmarks.fuzz.records import Samples
from gesta.address import open_record
from gesta.bridges import jsonl
from gesta.compat.agent_catalog.export import export_run as activity_log
from gesta.importers import agent_catalog
from gesta.importers.file import import_file
from gesta.importers.known import formats

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
FROM_CORPUS = 200_000
"""Greatest size in bytes of a file of the corpus that is used."""
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"what": "one"}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Where is it?"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {"role": "assistant", "content": "There."},
]
TAU = [{"task_id": 1, "reward": 1.0, "info": {"user_cost": 0.1}, "traj": CHAT, "trial": 0}]
TAU2 = {
    "timestamp": "2026-01-01T10:00:00",
    "info": {"git_commit": "abc", "agent_info": {"llm": "m"}},
    "tasks": [{"id": "t1"}],
    "simulations": [
        {
            "id": "s1",
            "task_id": "t1",
            "termination_reason": "user_stop",
            "messages": [
                {"role": "assistant", "content": "Hello", "turn_idx": 0, "timestamp": "2026-01-01T10:00:01"},
                {"role": "user", "content": "Hi", "turn_idx": 1, "tool_calls": None},
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c1", "name": "look", "arguments": {"at": 7}, "requestor": "assistant"}],
                    "usage": {"completion_tokens": 2, "prompt_tokens": 1},
                    "cost": 0.5,
                },
                {"role": "tool", "id": "c1", "content": "sent", "requestor": "assistant", "error": False},
            ],
        }
    ],
}


@cache
def documents() -> dict[str, list[Any]]:
    """Return documents by format.

    Those of one format belong into one file. They come from the tests of the importers.
    """
    from tests.ribs.test_import_activegraph import SIMULATION
    from tests.ribs.test_import_agentdojo import RUN
    from tests.ribs.test_import_inspect import DOCUMENT
    from tests.ribs.test_import_langfuse import SMALL as TRACE
    from tests.ribs.test_import_mini_swe_agent import SMALL as TRAJECTORY
    from tests.ribs.test_import_swe_agent import CALLED, TYPED
    from tests.ribs.test_import_swe_interactions import LOG
    from tests.ribs.test_import_tau2_voice import CALL as VOICE
    from tests.ribs.test_import_tau_few_shot import TEXT
    from tests.ribs.test_import_who_and_when import GROUP, ORCHESTRATED

    return {
        "activegraph": list(SIMULATION),
        "agentdojo": [RUN],
        "inspect": [DOCUMENT],
        "langfuse": [TRACE],
        "mini-swe-agent": [TRAJECTORY],
        "swe-agent": [CALLED, TYPED],
        "swe-agent-interactions": list(LOG),
        "tau2-voice": [VOICE],
        "tau-bench-few-shot": [{"messages_display": TEXT}],
        "who-and-when": [GROUP, ORCHESTRATED],
        "tau-bench": [TAU],
        "tau2-bench": [TAU2],
        "openai-chat": [{"messages": CHAT, "tools": [{"type": "function", "function": {"name": "look"}}]}],
    }


class Files:
    """Samples of files in all formats."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        records = Samples(folder)
        self.lines = anyio.run(_exported, records)
        self.names = [*documents(), *self.lines]
        few = [path for path in sorted(CORPUS.rglob("*")) if path.is_file() and path.stat().st_size < FROM_CORPUS]
        self.corpus = [path for path in few if path.suffix in {".json", ".jsonl", ".gz", ".zst", ".eval"}]


async def _exported(records: Samples) -> dict[str, bytes]:
    async with open_record(str(records.sample)) as record:
        own = "".join([line async for line in jsonl.export_all(record)])
        runs = [row.run for row in await record.store.runs()]
        catalog = "".join([line for run in runs async for line in activity_log(record, run)])
    return {jsonl.NAME: own.encode(), agent_catalog.NAME: catalog.encode()}


def data_of(lot: Random, files: Files, name: str) -> bytes:
    """Return the data of a file in a format, with some damage."""
    if name in files.lines:
        lines = files.lines[name].splitlines()
        place = lot.randrange(len(lines))
        lines[place] = hostile(lot, json.loads(lines[place])) if lot.random() < 0.7 else spoilt(lot, lines[place])
        if lot.random() < 0.1:
            lot.shuffle(lines)
        return b"\n".join(lines)
    many = list(documents()[name])
    if name == "inspect" and lot.random() < 0.4:
        return _archive(lot, many[0])
    place = lot.randrange(len(many))
    data = [json.dumps(each).encode() for each in many]
    data[place] = hostile(lot, many[place]).replace(b"\n", b" ")
    return b"\n".join(data)


def _archive(lot: Random, whole: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    rest = {name: value for name, value in whole.items() if name != "samples"}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(twisted(lot, rest) if lot.random() < 0.4 else rest))
        for number, sample in enumerate(whole.get("samples", ())):
            archive.writestr(f"samples/{number}_epoch_1.json", hostile(lot, sample))
    return spoilt(lot, file.getvalue()) if lot.random() < 0.5 else file.getvalue()


def imported(lot: Random, files: Files) -> str:
    """Import a damaged file, and read the record afterwards."""
    if files.corpus and lot.random() < 0.05:
        path = lot.choice(files.corpus)
        data = spoilt(lot, path.read_bytes())
        name, ending = lot.choice((None, None, *files.names)), "".join(path.suffixes)
    else:
        known = lot.choice(files.names)
        data, ending = data_of(lot, files, known), ".jsonl"
        name = lot.choice((None, known, known, lot.choice(formats().formats).name))
    if lot.random() < 0.1:
        data = gzip.compress(data, mtime=0)
        data = spoilt(lot, data) if lot.random() < 0.5 else data
    path = files.folder / f"input{ending}"
    path.write_bytes(data)
    return anyio.run(_imported, str(path), name)


async def _imported(path: str, name: str | None) -> str:
    async with gesta.open() as record:
        found = await import_file(record, path, name)
        for row in await record.store.runs():
            await record.state(row.run)
        flaws = await record.verify()
        if flaws:
            raise AssertionError(f"what was imported does not verify: {flaws[0]}")
    return f"imported {found.format}"
