"""What `verify` says, on the pages: where a record was changed, which rows of the page it looks like, and since when."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.commands import gesta_command
from tests.laws.test_verify_page import CHANGES, SHOWN, made, private
from tests.viewing import visited

import gesta
from gesta.integrity.verify import report
from gesta.web.evidence import ROWS, heads_in

pytestmark = pytest.mark.sample(2, over="parent")

__all__ = ["made"]
FULL = os.environ.get("GESTA_TESTS") == "full"


def changed(path: Path, data: bytes, *statements: str) -> Path:
    """Write a record, and change it as somebody would who can write the file."""
    private(path, data)
    with closing(sqlite3.connect(path)) as db, db:
        for each in statements:
            db.execute(each)
    return path


@contextmanager
def asking(path: Path) -> Iterator[httpx2.Client]:
    with visited(path, at="/api/0") as client:
        yield client


def ended(client: httpx2.Client) -> dict[str, Any]:
    """Return what a check said, when it is over."""
    while True:
        check = client.get("/evidence").json()["check"]
        if check["state"] != "running":
            return dict(check)


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::gesta.errors.SetAside")
async def test_a_flaw_names_the_row_of_the_page_whose_change_was_made(made: tuple[bytes, str], tmp_path: Path) -> None:
    flawed = [(what, changes) for what, changes in CHANGES.items() if "flaw" in SHOWN[what]]
    tried = [(what, each) for what, changes in flawed for each in (changes if FULL else changes[:1])]
    for number, (what, change) in enumerate(tried):
        path = tmp_path / f"r{number}.gesta"
        private(path, made[0])
        with closing(sqlite3.connect(path)) as db, db:
            db.executescript(change) if isinstance(change, str) else change(db)
        async with gesta.open(path, readonly=True) as record:
            flaws = (await report(record.store, heads_in(made[1]))).flaws
        assert any(what in ROWS[flaw.how] for flaw in flaws), (what, flaws)


def test_the_rows_that_flaws_name_are_those_of_the_page_that_say_flaw() -> None:
    named = {row for rows in ROWS.values() for row in rows}
    assert named == {what for what, found in SHOWN.items() if "flaw" in found}
    assert list(SHOWN) == list(CHANGES)


def test_each_changed_or_missing_entry_of_a_run_is_named_and_the_others_are_still_shown(
    made: tuple[bytes, str], tmp_path: Path
) -> None:
    long = "WHERE run = (SELECT run FROM entries GROUP BY run ORDER BY count(*) DESC) AND seq"
    path = changed(
        tmp_path / "r.gesta",
        made[0],
        f"UPDATE entries SET content = replace(content, 'hello', 'HELLO') {long} = 2",
        f"UPDATE entries SET content = '{{' {long} = 6",
        f"DELETE FROM entries {long} = 9",
        f"UPDATE entries SET at = 'yesterday' {long} = 11",
    )
    with asking(path) as client:
        runs = [run for each in client.get("/sessions").json()["sessions"] for run in each["runs"]]
        run = next(run for run in runs if client.get(f"/runs/{run}/evidence").json()["entries"] == 17)
        said = client.get(f"/runs/{run}/evidence").json()
        lines = client.get(f"/runs/{run}/lines").json()
        assert client.get(f"/runs/{run}").json()["head"] == 17
        for line in lines:
            assert client.get(f"/runs/{run}/why", params={"entry": line["seq"]}).is_success
    assert [(each["seq"], each["how"]) for each in said["flaws"]] == [
        (2, "digest"),
        (6, "digest"),
        (9, "missing"),
        (11, "digest"),
    ]
    assert [line["seq"] for line in lines] == [each for each in range(1, 18) if each != 9]
    assert (lines[1]["text"], lines[5]["who"], lines[9]["who"]) == ("HELLO", "not readable", "not readable")


def test_a_check_says_when_it_was_and_against_which_heads(made: tuple[bytes, str], tmp_path: Path) -> None:
    path = changed(tmp_path / "r.gesta", made[0], "DELETE FROM entries WHERE pos = (SELECT max(pos) FROM entries)")
    with asking(path) as client:
        assert client.get("/evidence").json() == {"check": None, "heads": 0}
        assert client.post("/evidence", json={"do": "start"}).status_code == 202
        plain = ended(client)
        client.post("/evidence", json={"do": "start", "heads": made[1]})
        kept = ended(client)
        run = kept["flaws"][0]["run"]
        of_run = client.get(f"/runs/{run}/evidence").json()
        refused = client.post("/evidence", json={"do": "start", "heads": made[1] + "\nnot a head"})
        assert gesta_command("verify", str(path), "--keep", str(tmp_path / "now.txt")).exit_code == 0
        assert client.get("/heads").text == (tmp_path / "now.txt").read_text(encoding="utf-8")
    assert (plain["state"], plain["found"], plain["heads"]) == ("done", 0, 0)
    assert plain["checked"] == plain["entries"] > 0
    assert (kept["state"], [each["how"] for each in kept["flaws"]], kept["heads"]) == ("done", ["cut"], 4)
    assert kept["at"] >= plain["ended_at"]
    assert ([each["how"] for each in of_run["flaws"]], of_run["covered"]) == (["cut"], of_run["entries"] + 1)
    assert refused.status_code == 400
    assert "Line 6 is not a head. A head is RUN.SEQ:DIGEST" in refused.json()["error"]["message"]


def test_a_check_is_asked_for_by_no_other_page_and_no_odd_word(made: tuple[bytes, str], tmp_path: Path) -> None:
    with asking(changed(tmp_path / "r.gesta", made[0])) as client:
        assert (
            client.post("/evidence", json={"do": "start"}, headers={"origin": "http://evil.example"}).status_code == 403
        )
        assert client.post("/evidence", content=b'{"do": "start"}').status_code == 415
        assert client.post("/evidence", json={"do": "prune"}).status_code == 400
        assert client.post("/evidence", json={"do": "stop"}).json() == {"check": None, "heads": 0}


def test_a_check_that_is_stopped_says_how_far_it_came(tmp_path: Path) -> None:
    path = tmp_path / "many.gesta"
    with gesta.open_sync(path) as record:
        for number in range(8):
            with record.span("app", session=f"s{number}") as span:
                span["number"] = number
    with asking(path) as client:
        client.post("/evidence", json={"do": "start"})
        client.post("/evidence", json={"do": "stop"})
        stopped = ended(client)
        client.post("/evidence", json={"do": "start"})
        again = ended(client)
    assert stopped["state"] in ("stopped", "done")  # it may have been over before it heard
    assert (again["state"], again["checked"]) == ("done", 24)


@pytest.mark.anyio
async def test_a_check_ends_at_the_next_page_once_it_was_stopped(made: tuple[bytes, str], tmp_path: Path) -> None:
    heard = list[int]()

    def told(entries: int) -> None:
        heard.append(entries)
        raise InterruptedError

    async with gesta.open(changed(tmp_path / "r.gesta", made[0]), readonly=True) as record:
        with pytest.raises(InterruptedError):
            await report(record.store, told=told)
    assert len(heard) == 1


def test_heads_are_compared_with_one_record() -> None:
    said = gesta_command("view", "one.gesta", "two.gesta", "--head", "heads.txt").stderr
    assert "--head compares one record with heads. Name one file." in said
    said = gesta_command("view", "one.gesta", "--head", "nowhere.txt").stderr
    assert "no head (RUN.SEQ:DIGEST), and no file of heads" in said
