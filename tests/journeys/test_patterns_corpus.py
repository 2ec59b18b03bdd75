"""Patterns over real data: a supervisor on a bank's documents, a plan on the Chinook database; and why they answered."""

import gzip
import importlib.util
import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests import programs
from tests.conftest import sampled
from tests.journeys.minds import goals, joined, mind

import gesta
from gesta.kinds import Hit
from gesta.patterns.supervisor import supervisor

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def why(record: Path) -> list[str]:
    words = ["-c", "from gesta.cli import main; main()", "why", "last", "--record", str(record)]
    told = programs.run(words, env=os.environ | {"COLUMNS": "100"})
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


@pytest.mark.parametrize("number", sampled([0, 20, 60], 3, 1))
async def test_three_researchers_find_the_documents_that_a_case_needs(
    corpus: Path, tmp_path: Path, number: int
) -> None:
    folder = corpus / "documents" / "banking-knowledge"
    documents = {each["id"]: each for each in lines(folder / "documents.jsonl.gz")}
    index = {id: words(f"{each['title']} {each['content']}") for id, each in documents.items()}
    cases = [each for each in lines(folder / "queries.jsonl.gz") if len(set(each["required_documents"])) >= 3]
    needed = list(dict.fromkeys(cases[number]["required_documents"]))[:3]

    @gesta.tool(effect="pure")
    async def search(query: str, context: gesta.Context) -> str:
        """Find the document that shares most words with a query."""
        wanted = words(query)
        best = max(index, key=lambda each: (documents[each]["title"] == query, len(wanted & index[each])))
        context.found(query, [Hit(document=best, score=len(wanted & index[best]) / len(wanted))])
        return documents[best]["content"]

    def research(messages: list[dict[str, Any]]) -> Any:
        last = messages[-1]
        return gesta.call("search", query=last["content"]) if last["role"] == "user" else last["content"].split("\n")[0]

    titles = [documents[id]["title"] for id in needed]
    model = mind(decompose=goals(*titles), research=research, synthesise=joined)
    async with gesta.open(str(tmp_path / "bank.gesta"), durability="normal") as record:
        outcome = await record.run(supervisor("bank", model, tools=[search]), "What holds here?", session="s")
        answer = next(entry for entry in await record.read(outcome.run) if entry.kind == "assistant")
        found = await record.explain(answer)
        assert await record.verify() == []
    assert outcome.answer is not None
    assert all(title in outcome.answer for title in titles)
    passages = [node.text.split("\n")[1] for node in found.nodes if node.type == "Retrieval"]
    assert sorted(passages) == sorted(needed)
    page = why(tmp_path / "bank.gesta")
    assert len(page) <= 40
    assert max(map(len, page)) <= 100
    text = "\n".join(page)
    assert text.count(" search {") == 3
    assert all(id[:40] in text for id in needed)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LINES = "from InvoiceLine join Track using (TrackId) join Genre g using (GenreId)"
TRACKS = "from Track join Genre g using (GenreId) join Album using (AlbumId) join Artist r using (ArtistId)"
QUERIES = (
    f"select g.Name, sum(Quantity) {LINES} group by 1 order by 2 desc",
    f"select r.Name, count(*) {TRACKS} where g.Name = 'Rock' group by 1 order by 2 desc",
    "select count(*) from Customer",
)


def read(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "Chinook_Sqlite.sqlite")) as base:
        return list(base.execute(query).fetchone())


async def test_a_plan_over_chinook_rests_on_the_rows_that_it_read(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Chinook_Sqlite.sqlite").symlink_to(corpus / "sqlite" / "chinook" / "Chinook_Sqlite.sqlite")
    monkeypatch.chdir(tmp_path)
    async with gesta.open(str(tmp_path / "shop.gesta"), durability="normal") as record:
        outcome = await record.run(example("plan").agent, "What sells?", session="s")
    genre, artist, count = (read(tmp_path, query) for query in QUERIES)
    assert outcome.answer == f"{genre[0]} sells best, most of it by {artist[0]}; the shop has {count[0]} customers."
    page = why(tmp_path / "shop.gesta")
    assert len(page) <= 40
    assert max(map(len, page)) <= 100
    text = "\n".join(page)
    assert text.count("ToolUse") == text.count(" sql {") == 3
    assert f'["[{artist[0]}]", {artist[1]}]' in text, "it is marked in the row that it was read from"
