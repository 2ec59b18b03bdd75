"""Kills processes that play, and judges how their records end.

It forks for every life, so that nothing is imported twice. The first process of a record is killed when it comes to a
point, and the next takes it up; or, `again`, the first is killed after its first commit, the next after its second,
and so on, until one comes to the end. Of the times that it comes to a point, STEP apart from FIRST on are taken.

python -m tests.laws.killed_programs PLAY FOLDER before|after|outside|again [FIRST STEP]
"""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import anyio
from tests.laws.killed_plays import CLOCK, PLAYS, Outside
from tests.validators.chat_completions import violations

from gesta import address
from gesta.address import Record
from gesta.demo.facts import bought_again
from gesta.entry import Entry
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    DecisionContent,
    EdgeContent,
    EndContent,
    KeyValueContent,
    PlanContent,
    RequestContent,
    SystemContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.models.scripted import Keyless, spoken
from gesta.prompt import rebuild
from gesta.store import Batch
from gesta.stores.sqlite import SqliteStore
from gesta.views.lineage import Unexplained, unexplained

DIALECT = Keyless("mind", lambda _: "", spoken("mind", stream=True))
"""Builds requests again."""
Life = tuple[int, str]
"""Where a life ends: before or after so many commits, from 1, or when so much was done `outside`."""
POINTS = ("before", "after", "outside")


async def judged(record: Record, outside: Outside) -> dict[str, Any]:
    """Return the state of a record and the world: what must be the same however often its process died, and what is wrong."""
    runs = {row.run: (row, await record.read(row.run)) for row in await record.store.runs()}
    names: dict[str, str] = {}
    for run, (row, entries) in runs.items():
        above = f"{names[row.parent_run]} > " if row.parent_run is not None else ""
        names[run] = f"{above}{row.name.partition('#')[0]}: {question(entries)}"
    root = next(run for run, (row, _) in runs.items() if row.parent_run is None)
    why = await record.explain((root, last_answer(runs[root][1])))
    everything = [entry for _, entries in runs.values() for entry in entries]
    wrong = [f"verify: {flaw}" for flaw in await record.verify()]
    wrong += [f"unexplained: {found}"] if (found := unexplained(everything)) != Unexplained({}, (), (), 0) else []
    wrong += [] if why.complete and not why.elsewhere else ["the answer is not explained"]
    wrong += [f"{names[run]}: {each}" for run, (_, entries) in runs.items() for each in ill(entries)]
    wrong += overbought(outside.asked(), everything)
    return {
        "facts": {names[run]: facts(entries) for run, (_, entries) in runs.items()},
        "why": sorted([node.type, node.text] for node in why.nodes if node.type != "Resolution"),
        "effects": [list(row) for row in outside.effects()],
        "wrong": wrong,
    }


def question(entries: Iterable[Entry]) -> str:
    return next((each.content.value for each in entries if isinstance(each.content, SystemContent | UserContent)), "")


def last_answer(entries: Sequence[Entry]) -> int:
    return next(entry.seq for entry in reversed(entries) if entry.kind == "assistant")


def facts(entries: Sequence[Entry]) -> dict[str, list[Any]]:
    """What must be the same in a run: what was said in its order, and what was done in any, for much goes on at once."""
    spans = {each.seq: each.content.name for each in entries if isinstance(each.content, BeginContent)}
    results: dict[int | None, list[Any]] = {}
    for entry in entries:
        if isinstance(entry.content, ToolResultContent):
            results.setdefault(entry.content.call, []).append([entry.content.tool_result, entry.content.outcome])
    said: list[Any] = []
    done: list[Any] = []
    for entry in entries:
        match entry.content:
            case SystemContent(value=text) | UserContent(value=text) | ChatCompletionContent(output=text):
                said.append([entry.kind, text])
            case AssistantContent(value=text):
                said.append([entry.kind, text])
            case ToolCallContent(tool_name=name, tool_args=args):
                said.append([name, args, *results.pop(entry.seq, [])])
            case DecisionContent(choice=choice, candidates=candidates, rationale=why):
                said.append([choice, candidates, why])
            case PlanContent(steps=steps):
                said.append([step.goal for step in steps])
            case EdgeContent(source=source, dest=dest, payload=payload):
                edge = ["edge", source, dest, plain(payload)]
                done += [edge] if edge not in done else []  # a tool that is tried again names its child again
            case KeyValueContent(key=key, value=value):
                done.append([key, None if key == CLOCK else value])
            case EndContent(status=status, reason=reason, state=state):
                done.append(["end", spans[entry.span], status, reason, plain(state)])
    assert not results, f"results of no call: {results}"
    return {"said": said, "done": sorted(done, key=json.dumps)}


def plain(value: Any) -> Any:
    """Leave out of a document what names entries: their seqs are others where a try was lost."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in ("metadata", "id")}
        return {key: list(each.values()) if key == "oai_tool_id2result" else plain(each) for key, each in kept.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def ill(entries: Sequence[Entry]) -> list[str]:
    """Return which histories were not valid, or are not what was sent, and what was bought again."""
    again, way = bought_again(entries), ""
    found = [f"{again} answers were bought again"] if again else []
    for entry in entries:
        if isinstance(entry.content, RequestContent):
            encoder = next((str(block[1]) for block in entry.content.blocks), way)
            way = encoder.partition("/")[0]
            made = rebuild(entries, entry.seq, address.formatter(way), DIALECT)
            found += [f"request {entry.seq}: {each}" for each in violations(made.body())]
            found += [] if made.digest == entry.content.body_digest else [f"request {entry.seq} cannot be built again"]
    return found


def overbought(asked: Counter[str], entries: Iterable[Entry]) -> list[str]:
    """Return what was sent without being on record, or answered twice on record."""
    requests = {
        (each.run, each.seq): each.content.body_digest for each in entries if isinstance(each.content, RequestContent)
    }
    announced = Counter(requests.values())
    answered = Counter(
        (each.run, requests[each.run, cause])
        for each in entries
        if isinstance(each.content, ChatCompletionContent)
        for cause in each.causes
        if isinstance(cause, int)
    )
    found = [f"{each:.8} was sent {times} times" for each, times in asked.items() if times > announced[each]]
    return found + [
        f"{each:.8} was answered {times} times in {run}" for (run, each), times in answered.items() if times > 1
    ]


class Doomed(SqliteStore):
    """A store that tells of its commits."""

    reach: Callable[[str], None]

    async def append(self, batch: Batch) -> int:
        self.reach("before")
        pos = await super().append(batch)
        self.reach("after")
        return pos


class Killing:
    """Kills this process where its life ends."""

    def __init__(self, life: Life | None) -> None:
        self.life = life
        self.reached: Counter[str] = Counter()

    def __call__(self, point: str) -> None:
        self.reached[point] += 1
        if self.life == (self.reached[point], point):
            os.kill(os.getpid(), signal.SIGKILL)


async def live(play: str, folder: Path, life: Life | None) -> None:
    """Play until the process is killed; a life without a death says at its end how all stands."""
    reach = Killing(life)
    outside = Outside(folder / "outside.db", reach)
    store = Doomed.open(str(folder / "r.gesta"), durability="normal")
    store.reach = reach
    record = Record(store, address.bind)
    await PLAYS[play](record, outside)
    if life is None:
        (folder / "verdict").write_text(json.dumps(await judged(record, outside)), encoding="utf-8")
    await store.close()
    outside.close()


def forked(play: str, folder: Path, life: Life | None) -> bool:
    """Live in a process of its own, and return whether it was killed."""
    child = os.fork()
    if not child:
        try:
            anyio.run(live, play, folder, life)
        except BaseException:  # noqa: BLE001 - a child of a fork must never go on as its parent
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"{play} {life} ended with {status}"
    return os.WIFSIGNALED(status)


def main(play: str, root: Path, point: str, first: int = 1, step: int = 1) -> None:
    """Kill a life of a record when it comes to a point first, of the next record when it does so again, to the last.

    With `again` it is one record: its first life ends after its first commit, its second after its second.
    """
    for number in count(first, step):
        folder = root if point == "again" else root / str(number)
        folder.mkdir(exist_ok=True)
        killed = forked(play, folder, (number, "after" if point == "again" else point))
        if point != "again" or not killed:
            assert not forked(play, folder, None)
            told = {"life": number, "killed": killed, **json.loads((folder / "verdict").read_text(encoding="utf-8"))}
            print(json.dumps(told), flush=True)
        if not killed:
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))
