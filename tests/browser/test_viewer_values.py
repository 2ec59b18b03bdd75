"""What was written, in a real browser: Markdown, values as tables, large numbers, images of the record."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import CHROMIUM, NEEDED, NO_CHROMIUM, aside, looking, said
from tests.commands import gesta_command
from tests.ribs.test_import_who_and_when import ORCHESTRATED
from tests.viewing import TOKEN, viewed

import gesta
from gesta.kinds import AssistantContent, Part, ToolCallContent, ToolResultContent, UserContent

sync_api = pytest.importorskip("playwright.sync_api", reason=NEEDED)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFElEQVR4nGNkYPj/n4GBgYGBgQEADigCAYnTFJYAAAAASUVORK5CYII="
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
WRITTEN = """# Your order
A *slanted*, **heavy**, ~~struck~~ word, snake_case_name, 2*3*4 and `code with * and <b>`.

- first
  - below
- [x] done

3. third
4. fourth

| item | price |
|------|------:|
| lamp \\| brass | 12.50 |

> said before

```python
print("<b>")
```

See [the shop](https://shop.example/a_(b)), https://other.example/x?a=1. Not [this](javascript:alert(1)) or [that](data:text/html,x).
![a picture](https://track.example/p.png?secret=1)

2024. It was no list."""
ORDERS = [{"order": 12345678901234567890, "paid": True, "lines": [{"n": 1}]}, {"order": 7, "paid": False}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("values") / "values.gesta"

    def write() -> str:
        with gesta.open_sync(path) as record, record.span("desk", session="s") as span:
            image = Part(type="image", data=PNG, media_type="image/svg+xml", name='a".png')
            drawing = Part(type="image", data=SVG, media_type="image/svg+xml", name="b.svg")
            remote = Part(type="image", url="https://track.example/q.png")
            span.log(UserContent(value="Look", parts=[image, drawing, remote]))
            call = span.log(ToolCallContent(tool_name="list", tool_args={"page": 1}))
            assert call is not None
            data = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
            found = {"__proto__": {"x": 1}, "orders": ORDERS, "scan": data, "many": [{"row": at} for at in range(90)]}
            found["by id"] = {"no. 1017": {"paid": True, "cents": 7}, "no. 1012": {"paid": False, "cents": 9}}
            found["unlike"] = {"customer": {"name": "Ann"}, "shop": {"open": True}}
            span.log(ToolResultContent(tool_result=found, call=call.seq, status="success"))
            span.log(AssistantContent(value=WRITTEN))
            return str(span.run)

    return path, str(aside(write))


def test_markdown_values_and_images_are_shown_as_a_person_reads_them(browser: Any, run: tuple[Path, str]) -> None:
    asked: list[str] = []
    with viewed(run[0]) as address, looking(browser) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/r/0/run/{run[1]}?token={TOKEN}")
        said = page.locator(".answer .said")
        said.wait_for()
        assert said.locator("h3").inner_text() == "Your order"
        for tag, words in {"em": "slanted", "strong": "heavy", "s": "struck", "blockquote": "said before"}.items():
            assert said.locator(tag).all_inner_texts() == [words]
        assert said.locator("p code").inner_text() == "code with * and <b>"
        assert "snake_case_name, 2*3*4" in said.inner_text()
        assert said.locator("ul ul li").inner_text() == "below"
        assert said.locator("ol").get_attribute("start") == "3"
        assert said.locator("ol li").count() == 2
        assert said.locator("td").all_inner_texts() == ["lamp | brass", "12.50"]
        assert said.locator("figure.block").inner_text().split() == ["python", 'print("<b>")']
        links = [
            (each.inner_text(), each.get_attribute("href"), each.get_attribute("rel"))
            for each in said.locator("a").all()
        ]
        assert links == [
            ("the shop", "https://shop.example/a_(b)", "noopener noreferrer"),
            ("https://other.example/x?a=1", "https://other.example/x?a=1", "noopener noreferrer"),
            ("image “a picture”", "https://track.example/p.png?secret=1", "noopener noreferrer"),
        ]
        assert "the shop (https://shop.example/a_(b))" in said.inner_text()
        assert "[this](javascript:alert(1))" in said.inner_text()
        assert "2024. It was no list." in said.inner_text()
        assert said.locator("img").count() == 0

        page.locator("details.call summary").click()
        call = page.locator("details.call")
        assert "12345678901234567890" in call.inner_text()
        assert call.get_by_text("__proto__").count() == 1
        call.get_by_role("button", name="show 40 more of 90 rows").click()
        call.get_by_role("button", name="show 10 more of 90 rows").click()
        assert call.locator("td", has_text="89").count() == 1

        alike = call.locator("dd", has=page.locator("th[scope=row]")).locator("table", has_text="1017")
        assert [row.inner_text().split() for row in alike.locator("tr").all()] == [
            ["paid", "cents"],
            ["no.", "1017", "true", "7"],
            ["no.", "1012", "false", "9"],
        ]
        assert call.locator("dt", has_text="customer").count() == 1
        assert page.locator(".item.answer > .at").inner_text() == "5"

        pictures = page.locator("img")
        assert pictures.count() == 2
        for each in pictures.all():
            each.scroll_into_view_if_needed()
            each.evaluate("each => each.decode()")
        assert page.get_by_text("b.svg").get_attribute("download") == "b.svg"
        assert page.get_by_text("https://track.example/q.png (not on record, and not loaded)").count() == 1
        assert all(each.startswith(address) for each in asked)


def test_an_address_with_a_stray_percent_sign_is_told_and_not_a_blank_page(browser: Any, run: tuple[Path, str]) -> None:
    with viewed(run[0]) as address, looking(browser) as page:
        page.goto(f"{address}/r/0?token={TOKEN}")
        page.locator(".sessions a.row").wait_for()
        page.evaluate("history.pushState(null, '', '/r/0/run/%zz'); dispatchEvent(new PopStateEvent('popstate'))")
        page.get_by_text("All sessions").wait_for()
        assert "%zz" in page.locator("main").inner_text()
        for wrong in ("/r/0/nothing", "/x", "/r/0/run/a/b", "/r/0/waiting/x"):
            page.goto(f"{address}{wrong}")
            page.get_by_text("There is no page at this address.").wait_for()


def test_a_note_leads_to_the_entry_that_it_is_about(page: Any, tmp_path: Path) -> None:
    source, record = tmp_path / "one.json", tmp_path / "one.gesta"
    source.write_text(json.dumps(ORCHESTRATED))
    assert aside(lambda: gesta_command("import", str(source), "--record", str(record)).exit_code) == 0
    with viewed(record) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.locator(".sessions a.row").click()
        page.get_by_role("link", name="about entry 13").click()  # the other one may be drawn first
        page.locator(".item.here", has_text="I looked in the garden: nothing.").wait_for()


def test_an_answer_in_json_is_read_as_its_texts_and_stands_below_as_it_was_written(page: Any, tmp_path: Path) -> None:
    path, written = tmp_path / "json.gesta", json.dumps({"message": "I need:\n- a name\n- a __path__s __init__"})
    odd = json.dumps({"message": {"a": 1}})
    agent = gesta.Agent("desk", model=gesta.scripted(written, odd))
    said(agent, "Hello", path)
    said(agent, "And now?", path)
    with viewed(path) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.locator(".sessions a.row").click()
        answers = page.locator(".answer .said")
        answers.nth(1).wait_for()
        assert answers.nth(0).locator("li").all_inner_texts() == ["a name", "a __path__s init"]
        answers.nth(0).get_by_text("as it was written, in JSON").click()
        assert answers.nth(0).locator("pre").inner_text() == written
        assert answers.nth(1).locator("pre").inner_text() == odd


def test_what_a_button_cannot_load_is_told_and_comes_at_the_next_try(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "long.gesta"
    said(gesta.Agent("desk", model=gesta.scripted("Hello. " + "word " * 2000 + "The end.")), "Hello", path)
    with viewed(path) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.locator(".sessions a.row").click()
        page.route("**/entries/*", lambda asked: asked.abort())
        more = page.get_by_role("button", name="show all of it")
        more.click()
        page.get_by_text("The viewer does not answer. Is `gesta view` still running?").wait_for()
        page.unroute("**/entries/*")
        more.click()
        page.get_by_text("The end.").wait_for()
