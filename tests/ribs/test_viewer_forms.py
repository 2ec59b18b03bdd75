"""What the viewer is told of a run in six forms: the same rows and data as the command line, in pages, cut where long."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.commands import gesta_command
from tests.ribs.test_viewer_sent import HOSTILE, LONG, talk
from tests.viewing import visited

FORMS = ("activity", "steps", "task", "react", "codeact", "why")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forms") / "talk.gesta"


@pytest.fixture(scope="module")
def run(path: Path) -> str:
    return talk(path)


@pytest.fixture(scope="module")
def client(run: str, path: Path) -> Iterator[httpx2.Client]:
    assert run
    with visited(path) as opened:
        yield opened


@pytest.mark.parametrize("form", FORMS)
def test_a_form_has_the_rows_of_the_command_line_in_pages(
    client: httpx2.Client, run: str, path: Path, form: str
) -> None:
    at = f"/api/0/runs/{run}/forms/{form}"
    whole = client.get(at).json()
    parts = [client.get(at, params={"after": n, "limit": 7}).json()["rows"] for n in range(0, whole["total"], 7)]
    assert [row for part in parts for row in part] == whole["rows"]
    words = ["why", run] if form == "why" else ["log", run, "--as", form]
    shown = gesta_command(*words, "--record", str(path), "--json")
    assert client.get(f"{at}/lines").text == shown.stdout
    page = "".join(gesta_command(*words, "--record", str(path), "--all").stdout.split())
    said = [row["cells"][-1] for row in whole["rows"]]
    assert said
    assert all("".join(text.split())[:10] in page for text in said if text.isascii())
    linked = {row["seq"] for row in whole["rows"] if row.get("seq")}
    assert linked
    assert all(row["run"] == run for row in whole["rows"] if row.get("seq"))


def test_a_long_cell_is_cut_until_somebody_asks_for_all_of_it(client: httpx2.Client, run: str) -> None:
    at = f"/api/0/runs/{run}/forms/react"
    rows = client.get(at).json()["rows"]
    place = next(n for n, row in enumerate(rows) if row.get("characters"))
    assert len(rows[place]["cells"][-1]) == 1_000
    assert client.get(f"{at}/rows/{place}").json()["cells"] == ["observation", f"{HOSTILE}: {LONG}"]


def test_another_answer_is_explained_too(client: httpx2.Client, run: str) -> None:
    first = next(
        row["seq"]
        for row in client.get(f"/api/0/runs/{run}/forms/activity").json()["rows"]
        if row["cells"][1] == "assistant"
    )
    found = client.get(f"/api/0/runs/{run}/forms/why", params={"entry": first}).json()["rows"]
    assert (found[-1]["seq"], found[-1]["cells"][-1]) == (first, "done 0")


@pytest.mark.parametrize(
    ("place", "said"),
    [("step", "Did you mean 'steps'?"), ("steps/rows/999", "no row 999"), ("nothing/lines", "No form 'nothing'")],
)
def test_a_form_that_is_not_there_is_said(client: httpx2.Client, run: str, place: str, said: str) -> None:
    answer = client.get(f"/api/0/runs/{run}/forms/{place}")
    assert answer.status_code == 404
    assert said in answer.json()["error"]["message"]
