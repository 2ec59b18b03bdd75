"""A file of any known format comes into a record: what it is, is seen from its content, and it comes in once.

A foreign conversation becomes one run, in a session named after file and conversation, in one commit: half of one can
not exist, and whoever imports again after a crash goes on where it stopped. The first span of the run, `import`, says
where it came from and holds the digest of the source; a run of that name with another digest is another conversation
of the same name, so this one gets a name with its digest. A file is read to its end before anything is written.
"""

import os
from collections import Counter
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from gesta.bridges import (
    activegraph,
    agent_catalog,
    agentdojo,
    inspect_log,
    jsonl,
    langfuse,
    mini_swe_agent,
    openai_chat,
    swe_agent,
    swe_interactions,
    tau2_bench,
    tau2_voice,
    tau_bench,
    tau_few_shot,
    who_and_when,
)
from gesta.bridges.foreign import Foreign, Imported, Oddities, Progress, Read, plain_name
from gesta.bridges.source import BadImport, Source
from gesta.entry import run_id
from gesta.errors import nearest
from gesta.kinds import BeginContent, Opened
from gesta.log import Journal, read, utc_now
from gesta.record import Record


class Format(Struct, frozen=True):
    """One format that can be read in."""

    name: str
    what: str
    """In words, for those who do not know the name."""
    form: str
    """`object`, `list` of objects, or `zip` archive."""
    keys: tuple[str, ...]
    """The members by which it is known."""
    read: Read | None = None
    """None for Gesta's own."""
    sessions: bool = False
    """Whether its conversations are sessions of the source, and keep those names."""
    vague: bool = False
    """Whether others have these members too: it is taken for this one if it is for no other."""


FORMATS = (
    Format(jsonl.NAME, "JSON lines that `gesta export` wrote", "object", ("gesta",)),
    Format("tau-bench", "a list of trials with `traj`", "list", ("traj",), tau_bench.read),
    Format("tau2-bench", "results with `simulations`", "object", ("simulations",), tau2_bench.read),
    Format("tau2-voice", "a simulation with `ticks`", "object", ("task_id", "ticks"), tau2_voice.read),
    Format("langfuse", "a `trace` with its `observations`", "object", ("trace", "observations"), langfuse.read),
    Format(
        "activegraph",
        "JSON lines of events with `event_type` and `parent_event_id`",
        "object",
        ("event_id", "event_type", "parent_event_id"),
        activegraph.read,
    ),
    Format(
        "tau-bench-few-shot",
        "JSON lines with `messages_display`",
        "object",
        ("messages_display",),
        tau_few_shot.read,
    ),
    Format(
        "who-and-when",
        "failed runs of several agents, with `mistake_step`",
        "object",
        ("history", "mistake_step"),
        who_and_when.read,
    ),
    Format(
        "agentdojo",
        "runs of tasks with `suite_name` and `user_task_id`",
        "object",
        ("suite_name", "user_task_id"),
        agentdojo.read,
    ),
    Format(
        "mini-swe-agent",
        "trajectories of an agent with one tool, with `trajectory_format`",
        "object",
        ("messages", "trajectory_format"),
        mini_swe_agent.read,
    ),
    Format("swe-agent", "runs with a `history`", "object", ("history",), swe_agent.read, vague=True),
    Format("inspect", "a log of Inspect AI", "object", ("status", "eval", "plan"), inspect_log.read),
    Format("inspect", "an `.eval` archive of Inspect AI", "zip", (inspect_log.HEADER,), inspect_log.read),
    Format("inspect", "one that was not finished", "zip", (inspect_log.START,), inspect_log.read),
    Format(
        "swe-agent-interactions",
        "a log of requests to models and their responses, with `timestamp` and `type`",
        "object",
        ("timestamp", "type"),
        swe_interactions.read,
        vague=True,
    ),
    Format(
        agent_catalog.NAME,
        "JSON lines of an activity log, with `catalog_version`",
        "object",
        ("catalog_version",),
        agent_catalog.read,
        sessions=True,
    ),
    Format(
        "openai-chat",
        "JSON lines of conversations with `messages`, as for fine-tuning",
        "object",
        ("messages",),
        openai_chat.read,
        vague=True,
    ),
)
KNOWN = f"Known formats: {', '.join(dict.fromkeys(known.name for known in FORMATS))}."
CHANGED = "The file changed while it was read; what stands before that place is imported. Import it again."


def _silent(_entries: int) -> None:
    """Show no progress."""


async def import_file(
    record: Record, path: str | os.PathLike[str], format: str | None = None, progress: Progress = _silent
) -> Imported:
    """Take a file into a record; what is there already is skipped. It may be packed with gzip or zstd.

    Args:
        format: name of its format; by default that is found by looking at its content.
        progress: is told how many entries were gone through so far.

    Raises:
        BadImport: it cannot be read, is of no known format, or something in it is not as it must be; nothing of it
            was imported.
        NewerRecord: a later release wrote it.
        RunHeld: somebody is writing one of its runs.
        WriteFailed: what was imported before that stays.

    Cost: reads the file twice, and once more up to the member by which it is known. The memory of one conversation.
    """
    source = Source(path)
    found = named(source, format) if format is not None else find_format(source)
    if found.read is None:
        return await jsonl.import_lines(record, source, progress)
    for _ in found.read(source, Counter()):
        pass  # whatever is wrong with it shows now, before anything is written
    try:
        return await _import(record, source, found, progress)
    except BadImport as error:
        raise BadImport(source.path, error.found, CHANGED) from error


def find_format(source: Source) -> Format:
    """Tell the format of a file by its content. Raises BadImport."""
    look = source.look([known.keys for known in FORMATS if not known.vague])
    for known in sorted(FORMATS, key=lambda known: known.vague):
        if look.form == known.form and set(known.keys).issubset(look.keys):
            return known
    raise BadImport(source.path, f"its format is not known; it is {look.found}", KNOWN)


def named(source: Source, name: str) -> Format:
    """Find a format by its name. Raises BadImport."""
    for known in FORMATS:
        if known.name == name:
            return known
    raise BadImport(
        source.path, f"no format is named {name!r}.{nearest(name, [known.name for known in FORMATS])}".strip("."), KNOWN
    )


async def _import(record: Record, source: Source, format: Format, progress: Progress) -> Imported:
    assert format.read is not None
    oddities: Oddities = Counter()
    runs = entries = skipped = gone = 0
    for foreign in format.read(source, oddities):
        session = await _session(record, source, format, foreign, oddities)
        written = 0
        if session is not None:
            origin = {"format": format.name, "file": source.name, "id": foreign.id, "digest": foreign.digest}
            opened = Opened(session=session, name=foreign.name, record=record.info.id)
            written = await _write(record, foreign, opened, origin)
        entries, runs, skipped = entries + written, runs + bool(written), skipped + (not written)
        gone += len(foreign.entries)
        progress(gone)
    counted = {name: count for name, count in sorted(oddities.items()) if count}
    return Imported(runs=runs, entries=entries, skipped=skipped, format=format.name, oddities=counted)


async def _session(record: Record, source: Source, format: Format, foreign: Foreign, oddities: Oddities) -> str | None:
    """Choose a session for a conversation; none if it is on record already."""
    plain = foreign.id if format.sessions else f"{plain_name(source.stem)}/{foreign.id}"
    for name in (plain, f"{plain}~{foreign.digest[:8]}", f"{plain}~{foreign.digest}"):
        rows = await record.store.runs(name)
        if not rows:
            return name
        if await _digest(record, rows[0].run) == foreign.digest:
            return None
        oddities["other-conversation"] += name == plain
    return None


async def _digest(record: Record, run: str) -> str | None:
    """Read the digest of the source that a run was imported from."""
    first = (await read(record.store, run, until=1))[0].content
    source = (first.annotations or {}).get("source") if isinstance(first, BeginContent) else None
    digest = source.get("digest") if isinstance(source, dict) else None
    return digest if isinstance(digest, str) else None


class _SourceClock:
    """A clock that shows the time of the entry that is being written."""

    def __init__(self, foreign: Foreign) -> None:
        self._now = next((entry.at for entry in foreign.entries if entry.at is not None), None) or utc_now()

    def __call__(self) -> datetime:
        return self._now

    def set(self, at: datetime | None) -> None:
        self._now = at or self._now


async def _write(record: Record, foreign: Foreign, opened: Opened, origin: dict[str, str]) -> int:
    """Write one conversation in one commit; nothing if somebody else did meanwhile."""
    run = run_id(opened.record, opened.session, opened.name)
    async with jsonl.leased(record.store, run) as lease:
        if lease.head:
            return 0
        clock = _SourceClock(foreign)
        journal = Journal(record.store, lease, clock)
        for entry in foreign.entries:
            clock.set(entry.at)
            content = entry.content
            if journal.head == 0:
                assert isinstance(content, BeginContent)
                content = replace(content, opened=opened, annotations={"source": origin})
            journal.write(content, entry.span, entry.causes, entry.annotations)
        await journal.durable()
    return len(foreign.entries)
