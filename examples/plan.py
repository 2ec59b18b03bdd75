"""A plan that queries a music shop's database: Chinook if its file is in the current folder, or else a few sample rows.

Prints:
    Tango sells best, most of it by The Lanterns; the shop has 2 customers.
    0. Which genres sell best?
    1. Which artists play the first? (needs 0)
    2. How many customers are there?
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import gesta
from gesta.patterns.plan import plan_then_execute

FILE = Path("Chinook_Sqlite.sqlite")
ROWS = """
create table Genre as select 1 GenreId, 'Tango' Name; create table Artist as select 1 ArtistId, 'The Lanterns' Name;
create table Album as select 1 AlbumId, 1 ArtistId; create table Track as select 1 TrackId, 1 AlbumId, 1 GenreId;
create table InvoiceLine as select 1 TrackId, 3 Quantity; create table Customer as select 1 union select 2;"""
GENRES = (
    "select GenreId, sum(Quantity), g.Name from InvoiceLine join Track using (TrackId) join Genre g using (GenreId)"
)
ARTISTS = "select r.Name, count(*) from Track join Album using (AlbumId) join Artist r using (ArtistId) where GenreId"
STEPS = {"Which genres sell best?": None, "Which artists play the first?": [0], "How many customers are there?": None}


@gesta.tool(effect="pure")
def sql(query: str) -> list[Any]:
    """Run a query on the database."""
    with closing(sqlite3.connect(FILE if FILE.is_file() else ":memory:")) as base:
        base.executescript("" if FILE.is_file() else ROWS)
        return base.execute(query).fetchmany(3)


def think(messages: list[dict[str, Any]], header: gesta.kinds.RequestHeaderContent) -> Any:
    """Act as a model: the reply depends on which prompt of the pattern is given."""
    prompt, last = (header.meta or {})["prompt"]["name"], messages[-1]
    if prompt == "plan":
        return json.dumps({"steps": [{"goal": goal, "depends_on": needs} for goal, needs in STEPS.items()]})
    if last["role"] == "tool":
        return last["content"]
    found = [json.loads(each["result"])[0] for each in json.loads(last["content"]).get("results", ())]
    if prompt == "synthesise":
        return f"{found[0][2]} sells best, most of it by {found[1][0]}; the shop has {found[2][0]} customers."
    counting = "select count(*) from Customer" if "many" in last["content"] else f"{GENRES} group by 1 order by 2 desc"
    return gesta.call("sql", query=f"{ARTISTS} = {found[0][0]} group by 1 order by 2 desc" if found else counting)


agent = plan_then_execute("shop", gesta.function(think), tools=[sql])
if __name__ == "__main__":
    outcome = gesta.run_sync(agent, "What sells?", record="shop.gesta")
    print(outcome.answer)
    with gesta.open_sync("shop.gesta") as record:
        plans = [each.content for each in record.read(outcome.run) if isinstance(each.content, gesta.kinds.PlanContent)]
    for place, step in enumerate(plans[0].steps):
        print(f"{place}. {step.goal}" + (f" (needs {step.depends_on[0]})" if step.depends_on else ""))
