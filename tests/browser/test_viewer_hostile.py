"""Whatever was said is shown as text: each hostile text, through every kind of entry and every place, in every view."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, looking, watched
from tests.cli.test_transcript import SAMPLES
from tests.hostile import TEXTS
from tests.viewing import TOKEN, viewed

import gesta
from gesta import kinds
from gesta.web.app import STATIC

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM), pytest.mark.timeout(300)]

PARAGRAPHS = 2_400
"""Number of characters of a text that holds several hostile ones, so that no view cuts it."""
OPEN = """() => {
    for (const each of document.querySelectorAll("details")) each.open = true;
    for (const each of document.querySelectorAll("main button")) if (!each.closest(".answers, .filters, .pages, dialog")) each.click();
    for (const each of document.querySelectorAll("main *")) for (const type of ["mouseenter", "pointermove", "focusin", "toggle", "error"]) each.dispatchEvent(new Event(type));
}"""
MADE = """() => [...document.querySelectorAll("*")].map((each) => [each.localName, [...each.attributes].map((it) => [it.name, it.value])])"""
FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"


def filled(kind: Any, text: str) -> kinds.Content:
    """Return a content of a kind in which every member that may hold a text holds this one."""
    fields = dict.fromkeys(kind.__struct_fields__) | msgspec.to_builtins(SAMPLES[kind])
    made = {name: each for name, each in msgspec.to_builtins(SAMPLES[kind]).items() if each is not None}
    for name, sample in fields.items():
        part = {"type": "image", "url": text, "name": text, "media_type": text}
        guesses = [swapped(sample, text)] if sample is not None else []
        for guess in [
            *guesses,
            {text: [{text: text, "url": text}] * 2},
            text,
            [text],
            [part],
            {"type": text, "message": text},
        ]:
            try:
                msgspec.convert({"kind": str(kind.kind)} | made | {name: guess}, kind)
            except msgspec.ValidationError:
                continue
            made[name] = guess
            break
    content: kinds.Content = msgspec.convert({"kind": str(kind.kind)} | made, kind)
    return content


def swapped(value: Any, text: str) -> Any:
    match value:
        case str():
            return text
        case list():
            return [swapped(each, text) for each in value]
        case dict():
            return {key: swapped(each, text) for key, each in value.items()}
    return value


def together(texts: Sequence[str]) -> list[str]:
    """Return texts as paragraphs of few texts."""
    found = [""]
    for each in texts:
        if len(found[-1]) + len(each) > PARAGRAPHS:
            found.append("")
        found[-1] += f"{each}\n\n"
    return found


@gesta.tool(effect="once", approval=True)
def pay(note: Any) -> str:
    """Pay."""
    return str(note)


async def write(path: Path, texts: Sequence[str] = TEXTS) -> str:
    """Write a record with these texts everywhere, and return the run that holds every kind."""
    async with gesta.open(path) as record:
        for text in texts:
            async with record.span(text, session=text) as span:
                span.write(kinds.UserContent(value=text, user_id=text))
        seqs = dict[Any, int]()
        async with record.span(texts[0], session="every kind") as every:
            for text in together(texts):
                for kind in sorted(get_args(kinds.Content), key=lambda kind: kind is kinds.AssistantContent):
                    if kind in (kinds.BeginContent, kinds.EndContent):
                        continue
                    content = filled(kind, text)
                    if isinstance(content, kinds.RequestContent):
                        block = json.dumps({"role": "user", "content": text})
                        content = replace(
                            content, header=seqs[kinds.RequestHeaderContent], extends=None, blocks=[block]
                        )
                    seqs[kind] = every.write(content, annotations={text: text}).seq
    return str(every.run)


def ask(path: Path, texts: Sequence[str] = TEXTS) -> None:
    """Begin two runs on the record, in which a call and a question with these texts wait for a person."""

    async def program(verbs: gesta.Verbs, question: str) -> str:
        return str(await verbs.ask(question, question, {"enum": [question], "title": question}))

    every = "\n\n".join(together(texts))
    model = gesta.scripted(gesta.call("pay", note={every: [every]}), "never")
    gesta.run_sync(gesta.Agent("desk", model=model, tools=[pay]), every, record=path, session="asks")
    gesta.run_sync(gesta.Agent(every[:500], program=program), every, record=path, session="wonders")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=alert(1)>.gesta"
    run = aside(lambda: anyio.run(write, path))
    aside(lambda: ask(path))
    return path, run


def views(run: str) -> Iterator[str]:
    """Yield the addresses of all views."""
    for page in range(1, 6):
        yield f"/r/0?page={page}"
    yield "/r/all"
    yield "/r/0?words=script&agent=%3Cscript%3E&stands=%22%3E"
    yield "/r/0/waiting"
    yield "/r/0/evidence"
    yield f"/r/0/run/{run}"
    for each in (
        "/why",
        "/sent",
        "/sent?show=wire",
        "/time",
        "?form=activity",
        "?form=steps",
        "?form=task",
        "?form=why",
    ):
        yield f"/r/0/run/{run}{each}"
    yield "/r/0/run/%3Cscript%3Ealert(1)%3C%2Fscript%3E"


def own() -> tuple[set[str], set[str]]:
    """Return the names of elements and attributes that the pages make by themselves."""
    source = "".join(each.read_text() for each in STATIC.iterdir() if each.name.endswith(".js"))
    tags = set(re.findall(r'\bel\("(?:svg:)?([A-Za-z]\w*)"', source))
    tags |= {"ol", "ul", "th", "td", "h3", "h4", "h5", "h6"}  # these are chosen by a script of the pages
    index = (STATIC / "index.html").read_text()
    tags |= set(re.findall(r"<([a-z]\w*)", index))
    attributes = set(re.findall(r'\b([a-z-]+)="', index)) | {"hidden", "disabled", "open", "defer"}
    return tags, attributes | set(re.findall(r"""[\s{"]([A-Za-z][\w-]*)"?:""", source)) | set(
        re.findall(r'setAttribute\("([\w-]+)"', source)
    )


def reported(route: Any) -> None:
    """Answer with a policy that is reported and not kept, so that a script would run, and a breach is told."""
    answer = route.fetch()
    headers = answer.headers
    headers["content-security-policy-report-only"] = headers.pop("content-security-policy")
    route.fulfill(response=answer, headers=headers)


def visit(page: Any, view: str) -> None:
    """Open a view, and wait until something is shown in it."""
    page.goto(view, wait_until="domcontentloaded")
    page.locator("main > *").first.wait_for()
    page.locator(
        "main .item, main .row, main .wait, main .card, main .empty, main .sent > *, main .form td, main .warn, main .lane, main .evidence"
    ).first.wait_for(state="attached")


def test_no_text_runs_or_loads_anything_in_any_view(browser: Any, record: tuple[Path, str]) -> None:
    path, run = record
    wrong, asked, shown = list[str](), list[str](), 0
    tags, attributes = own()
    with viewed(path) as address:
        context = browser.new_context(viewport={"width": 1360, "height": 900})
        context.route(lambda url: "/r/0" in url, reported)
        page = context.new_page()
        watched(page, wrong)
        page.on("response", lambda each: wrong.append(f"{each.status} {each.url}") if each.status >= 500 else None)
        page.on("request", lambda request: asked.append(request.url))
        context.on("page", lambda other: wrong.append(f"another page opened: {other.url}"))
        page.goto(f"{address}/?token={TOKEN}")
        for view in views(run):
            visit(page, f"{address}{view}")
            before = page.url
            page.evaluate(OPEN)
            page.evaluate(FRAMES)
            assert page.url.partition("#")[0].partition("?")[0] == before.partition("#")[0].partition("?")[0]
            for tag, facts in page.evaluate(MADE):
                assert tag in tags, (view, tag)
                check(facts, tag, attributes, view, address)
            words = page.locator("main").inner_text()
            assert "[object " not in words, view  # an element that was taken for a text
            shown += words.count("alert(1)")
        context.close()
    assert wrong == []
    assert [each for each in asked if not each.startswith(f"{address}/")] == []
    assert shown > 5000  # the texts were there to be seen


def check(facts: list[tuple[str, str]], tag: str, attributes: set[str], view: str, address: str) -> None:
    names: Mapping[str, str] = dict(facts)
    for name, value in names.items():
        if name == "style" and re.fullmatch(r"((--[a-z]+|height|width|top|left): [\d.]+(px|rem|%)?; ?)*", value):
            continue  # a length that a script of the pages measured
        assert name in attributes, (view, tag, name)
        assert not name.startswith("on"), (view, tag, name)
        assert name not in ("style", "srcdoc", "action", "formaction", "ping", "background"), (view, tag, name)
        if name in ("src", "href", "xlink:href"):
            outside = tag == "a" and value.startswith(("http://", "https://"))
            assert value.startswith(("/", "#")) or outside, (view, tag, value)
            assert not value.startswith("//"), (view, tag, value)
            assert not outside or (names["rel"] == "noopener noreferrer" and names["target"] == "_blank"), (view, value)


def test_a_word_of_three_hundred_letters_makes_no_view_wider_than_the_window(browser: Any, tmp_path: Path) -> None:
    path, wide = tmp_path / "long.gesta", list[str]()
    run = aside(lambda: anyio.run(write, path, ["W" * 300]))
    aside(lambda: ask(path, ["W" * 300]))
    with viewed(path) as address, looking(browser) as page:
        page.goto(f"{address}/?token={TOKEN}")
        for view in views(run):
            visit(page, f"{address}{view}")
            page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
            for width in (1360, 390):
                page.set_viewport_size({"width": width, "height": 900})
                over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                wide += [f"{view} at {width}: {over} px"] if over > 0 else []
    assert wide == []
