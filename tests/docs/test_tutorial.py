"""The tutorial is played page after page, its kills too; its pictures, its marks and its words are held to what it plays."""

import difflib
import itertools
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import httpx2
import pytest
from tests import programs
from tests.docs.reader import ENVIRONMENT, Browser, Client, reading, steps
from tests.docs.test_commands import commands
from tests.docs.test_readme import Provider

import gesta
from gesta.entry import Entry
from gesta.kinds import FaultContent

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
PAGES = sorted(TUTORIAL.glob("[0-9]-*.md"))
CHROMIUM = shutil.which("chromium")
SVG = "{http://www.w3.org/2000/svg}"
ORDINARY = {"word", "kind", "log", "view", "move", "step", "wait", "block", "store", "content", "cause", "pattern"}
"""Words of the glossary that the pages use as everybody does, if at all."""

FOR_COLLEAGUES = ["runs/cleo/approve", "runs/cleo/cancel", "sessions", "sessions/cleo/../../waiting"]
"""Paths that are not for customers."""

pytestmark = pytest.mark.timeout(120)  # whichever test comes first plays four pages before


class Story(NamedTuple):
    """What a reader has after the first four pages."""

    folder: Path
    wrong: dict[str, list[str]]
    """For each page, where it is otherwise than the page shows."""

    versions: dict[str, list[str]]
    """The texts that each file had."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("desk")
    with reading(folder) as reader:
        wrong = {page.stem: reader.play(page) for page in PAGES[:4]}
    return Story(folder, wrong, reader.versions)


@pytest.mark.parametrize("page", PAGES[:4], ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, story: Story) -> None:
    assert not story.wrong[page.stem], "\n".join(story.wrong[page.stem])


def test_the_crash_paid_once_and_no_payment_was_made_without_a_yes(story: Story) -> None:
    paid = [line.split(" ", 1)[1] for line in (story.folder / "bank.txt").read_text().splitlines()]
    assert paid == ["order 42", "order 43"]


def test_the_record_of_the_story_is_whole_and_has_one_death(story: Story) -> None:
    assert flaws_of(story) == []
    faults = [entry.content for entry in entries_of(story, "anna") if isinstance(entry.content, FaultContent)]
    assert [each.of for each in faults if each.error.type == "lost"] == [24]


def test_the_picture_of_a_record_is_what_the_reader_has_on_disk(story: Story) -> None:
    words = pictured("record")
    rows = [list(range(1, 13)), list(range(13, 24))]
    assert [int(word) for word in words if word.isdecimal()] == [seq for row in rows for seq in row]
    for session, turns in (("anna", rows), ("ben", rows)):
        spans = [[each.seq for each in entries_of(story, session) if each.span == row[0]] for row in turns]
        assert spans == turns
    kinds = {entry.seq: str(entry.kind) for entry in entries_of(story, "anna")}
    said = "2 is the message, 6 the call, 8 the result, 11 the answer."
    assert said in " ".join(words)
    assert [kinds[seq] for seq in (1, 2, 6, 8, 11, 12)] == [
        "begin",
        "user",
        "tool-call",
        "tool-result",
        "assistant",
        "end",
    ]


def entries_of(story: Story, session: str) -> list[Entry]:
    """Return the entries of the one run of a session."""
    with gesta.open_sync(story.folder / "runs.gesta", readonly=True) as record:
        return record.read(record.find(session).run)


def flaws_of(story: Story) -> list[Any]:
    """Return what is wrong with the record."""
    with gesta.open_sync(story.folder / "runs.gesta", readonly=True) as record:
        return list(record.verify())


def pictured(name: str) -> list[str]:
    """Return the texts that a picture shows, in the order in which they are written."""
    texts = ET.parse(TUTORIAL / f"{name}.svg").iter(f"{SVG}text")
    return [" ".join("".join(each.itertext()).split()) for each in texts]


@pytest.mark.parametrize("name", ["record", "crash", "approval"])
def test_a_picture_is_drawn_for_light_and_dark_and_says_in_words_what_it_shows(name: str) -> None:
    source = (TUTORIAL / f"{name}.svg").read_text(encoding="utf-8")
    root = ET.fromstring(source)
    assert all((root.findtext(f"{SVG}{each}") or "").strip() for each in ("title", "desc"))
    assert "prefers-color-scheme: dark" in source
    assert [root.get("width"), (root.get("viewBox") or "").split()[2]] == ["700", "700"]
    assert not re.search(r"href|url\(|@import|<script|<image|<foreignObject", source), "it loads nothing"
    shown = [
        alt for page in PAGES for alt in re.findall(rf"!\[(.+?)\]\({name}\.svg\)", page.read_text(encoding="utf-8"))
    ]
    assert len(shown) == 1
    assert len(shown[0].split()) > 30, "who cannot see the picture reads what it shows"


def test_the_lines_that_a_page_marks_are_those_that_changed(story: Story) -> None:
    marked = {
        text: {int(number) for number in (re.search(r'hl_lines="([\d ]+)"', head) or ["", "0"])[1].split()}
        for page in PAGES
        for head, text in re.findall(
            r"^```(\w+[^\n]*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
    }
    versions = story.versions["desk.py"]
    shown = [(old, new) for old, new in itertools.pairwise(versions) if new in marked]
    assert len(shown) == 3
    for old, new in shown:
        lines = new.splitlines()
        changes = difflib.SequenceMatcher(None, old.splitlines(), lines, autojunk=False).get_opcodes()
        changed = {
            place + 1 for what, _, _, *span in changes if what != "equal" for place in range(*span) if lines[place]
        }
        assert marked[new] == changed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_says_what_comes_of_it_and_leads_on(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 180
    assert re.match(r"# \d\. .+\n\nAt the end of this page ", text)
    last = text.split("\n## ")[-1]
    assert last.startswith("What you have now\n")
    follows = PAGES[PAGES.index(page) + 1 :]
    assert (
        not follows
        or f"\nNext: [{follows[0].read_text(encoding='utf-8')[2:].splitlines()[0]}]({follows[0].name})" in last
    )


def explained() -> dict[str, int]:
    """Return the words that are explained, where they stand in bold, with the place of the page."""
    found: dict[str, int] = {}
    for place, page in enumerate(PAGES):
        for words in re.findall(r"\*\*(.+?)\*\*", page.read_text(encoding="utf-8")):
            found.setdefault(re.sub(r"^(An?|The) ", "", words).lower(), place)
    return found


@pytest.mark.parametrize("place", range(len(PAGES)), ids=[page.stem for page in PAGES])
def test_no_word_of_the_glossary_is_used_before_it_is_explained(place: int) -> None:
    glossary = (TUTORIAL.parent / "glossary.md").read_text(encoding="utf-8").split("## Words of others")[0]
    words = {re.sub(r"\[(.*?)\]\(.*?\)", r"\1", word) for word in re.findall(r"^\| (.+?) \|", glossary, re.MULTILINE)}
    text = PAGES[place].read_text(encoding="utf-8").split("\nNext: ")[0]
    text = re.sub(r"^```(?!text).*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text += " ".join(word for name in re.findall(r"\]\((\w+)\.svg\)", text) for word in pictured(name))
    text = re.sub(r"<!--.*?-->|`[^`\n]+`|\]\([^)]*\)", " ", text)
    known = {word for word, first in explained().items() if first <= place}
    used = {word for word in words - ORDINARY - known if re.search(rf"\b{word}s?\b", text, re.IGNORECASE)}
    assert used == set()


@pytest.fixture
def provider() -> Iterator[str]:
    """Address of a server that speaks Chat Completions, in place of OpenAI's."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.mark.slow
def test_a_live_model_takes_the_place_of_the_stand_in_and_its_key_is_in_no_file(
    story: Story, provider: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(story.folder, tmp_path / "desk")
    (folder / "desk.py").write_text(story.versions["desk.py"][1], encoding="utf-8")
    [live] = [step for step in steps(PAGES[1]) if step.what == "live"]
    (_, exported), (setting, *command) = (words for words, _ in commands(live.text))
    named = dict(each.split("=", 1) for each in (exported, setting)) | {"OPENAI_BASE_URL": provider}
    done = programs.run(command[1:], cwd=folder, env=ENVIRONMENT | named)
    assert (done.stdout, done.stderr) == ("gpt-5-mini says: no umbrella.\n" * 2, "")
    assert named["OPENAI_API_KEY"].startswith("sk-")
    assert not [each for each in folder.iterdir() if each.is_file() and b"sk-..." in each.read_bytes()]
    del named["OPENAI_API_KEY"]
    without = programs.run([*command[1:-1], "dora"], cwd=folder, env=ENVIRONMENT | named)
    assert without.returncode == 1
    assert "set OPENAI_API_KEY" in without.stderr


@pytest.fixture(params=["client", pytest.param("browser", marks=pytest.mark.slow)])
def browser(request: pytest.FixtureRequest) -> Iterator[Browser | Client]:
    if request.param == "client":
        yield Client()
        return
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install -e '.[browser]': the page is seen there")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Browser(opened)
        opened.close()


def test_what_is_done_and_seen_in_the_browser_stands_on_the_page() -> None:
    prose = " ".join(re.sub(r"<!--.*?-->", "", PAGES[4].read_text(encoding="utf-8")).split())
    told = [
        step.text for step in steps(PAGES[4]) if step.what in ("visit", "send", "see") and step.text != "Connected."
    ]
    assert len(told) == 5
    assert all(f"*{text}*" in prose or f"<{text}>" in prose for text in told)


@pytest.mark.slow
def test_the_served_page_does_what_it_shows(browser: Browser | Client, story: Story, tmp_path: Path) -> None:
    with reading(shutil.copytree(story.folder, tmp_path / "desk"), browser) as reader:
        wrong = reader.play(PAGES[4])
        refused = [httpx2.post(f"{reader.address}/api/{path}", json={}).status_code for path in FOR_COLLEAGUES]
        assert browser.lines() == [
            "You: Order 42 is broken. I want my money back.",
            "A colleague is asked.",
            "Desk: The money is paid back.",
        ]
        browser.hold()
        reader.run(["kill", "$!"])
        browser.see("The server is away.")
        (begin,) = {step.text for step in steps(PAGES[4]) if step.text.startswith("uvicorn ")}
        reader.run(begin.split())
        browser.see("Connected.")
    assert not wrong, "\n".join(wrong)
    assert refused == [404] * len(FOR_COLLEAGUES)
    assert (tmp_path / "desk" / "bank.txt").read_text().count("\n") == 3
