"""One folder from the pages: the one script, which files it writes, and what it refuses."""

import re

import pytest

from gesta.web.app import STATIC
from gesta.web.one_script import BadModule, one_script

MODULES = {each.name: each.read_text(encoding="utf-8") for each in STATIC.iterdir() if each.name.endswith(".js")}
INSTEAD = {"source.js": "folder.js"}


def test_one_script_has_every_line_of_the_modules_and_no_import() -> None:
    script = one_script(MODULES, "app.js", INSTEAD)
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    lines = set(script.splitlines())
    for name, text in MODULES.items():
        if name != "source.js":
            lost = [
                line for line in text.splitlines() if line not in lines and not re.match(r"(import|export)\b", line)
            ]
            assert not lost, name


def test_modules_come_after_those_that_they_import_under_the_names_that_they_ask_for() -> None:
    modules = {
        "a.js": 'import * as b from "./b.js";\nimport { one as first, two } from "./c.js";\nb.show(first, two);\n',
        "b.js": 'import { two } from "./c.js";\nexport { one } from "./c.js";\nexport function show() { return two; }\n',
        "c.js": "export const one = 1, unused = 2;\nexport async function two() {}\n",
    }
    script = one_script(modules, "a.js", {})
    places = [script.index(f'modules["{name}.js"] = ') for name in "cba"]
    assert places == sorted(places)
    assert 'const { one: first, two } = modules["c.js"];' in script
    assert 'return { show, one: modules["c.js"].one };' in script


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"a.js": 'import "./b.js";\n', "b.js": ""}, "not translated"),
        ({"a.js": "export default 1;\n"}, "not translated"),
        ({"a.js": "export let a = 1;\n"}, "not translated"),
        ({"a.js": 'const b = await import("./b.js");\n'}, "not translated"),
        ({"a.js": 'import { b } from "./b.js";\n'}, "no module 'b.js'"),
        (
            {"a.js": 'import { b } from "./b.js";\n', "b.js": "export const a = 1, b = 2;\n"},
            "does not export by itself",
        ),
        ({"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}, "import each other"),
    ],
)
def test_a_form_that_the_one_script_does_not_know_is_an_error(modules: dict[str, str], said: str) -> None:
    with pytest.raises(BadModule, match=said):
        one_script(modules, "a.js", {})


def test_a_folder_gives_its_pages_all_that_the_server_gives_them() -> None:
    def exported(text: str) -> set[str]:
        return set(re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", text, re.MULTILINE))

    assert exported(MODULES["source.js"]) == exported(MODULES["folder.js"])
