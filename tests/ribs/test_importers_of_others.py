"""Formats that installed distributions bring: found by their entry point, named where they are broken, believed in nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import gesta_command

from gesta.address import open_record
from gesta.importers.file import import_file
from gesta.importers.known import find_format, formats, named
from gesta.importers.own import OWN
from gesta.importers.source import BadImport, Source

DESK = """
from gesta.importers.chat import Chat
from gesta.importers.foreign import Foreign, digest_json, each_document
from gesta.importers.format import Format
from gesta.importers.message import said

def ticket(document, words, oddities):
    chat, names = Chat("desk", oddities), {}
    for place, message in enumerate(document.value["talk"]):
        chat.take(said(message, names, oddities), place)
    id, digest = str(document.value["ticket"]), digest_json(document.value)
    return Foreign(id=id, name="desk", digest=digest, entries=chat.finish("answered", None))

def read(source, oddities):
    return each_document(source, oddities, ticket)

FORMATS = (Format("shop-desk", "tickets with their talk", "object", ("ticket", "talk"), read),)
"""
TICKET = {"ticket": 7, "talk": [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "Here."}]}


def installed(folder: Path, name: str, value: str, module: str, text: str) -> None:
    """Install a distribution that brings one importer, as pip would leave it in a folder of `sys.path`."""
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gesta.importers]\n{name} = {value}\n")
    (folder / f"{module}.py").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    for module in ("desk_importer", "broken_importer"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "ticket.json").write_text(json.dumps(TICKET))
    (tmp_path / "trials.json").write_text(json.dumps([{"task_id": 1, "traj": TICKET["talk"]}]))
    return folder


def test_a_failed_import_leaves_a_record_that_somebody_else_wrote_meanwhile(site: Path):
    meanwhile = """
from gesta.address import drive, inline_store
from gesta.store import Batch
from gesta.testing import make_opening

def read(source, oddities):
    store = inline_store("r.gesta")
    drive(store.append(Batch(drive(store.lease("r")), 0, [make_opening("r", "s", "n")])))
    drive(store.close())
    raise ValueError("the end of the file is damaged")
"""
    text = DESK.replace("def read(source", "def unused(source").replace("\nFORMATS", f"{meanwhile}\nFORMATS")
    installed(site, "shop-desk", "desk_importer:FORMATS", "desk_importer", text)
    done = gesta_command("import", "ticket.json", "--record", "r.gesta")
    assert done.exit_code == 1
    assert "the end of the file is damaged" in done.stderr
    shown = gesta_command("runs", "--record", "r.gesta", "--json").stdout
    assert [json.loads(line)["session"] for line in shown.splitlines()] == ["s"]


async def test_a_file_of_an_installed_format_is_known_and_comes_in_once(site: Path):
    installed(site, "shop-desk", "desk_importer:FORMATS", "desk_importer", DESK)
    assert find_format(Source("ticket.json")).name == named(Source("ticket.json"), "shop-desk").name == "shop-desk"
    async with open_record() as record:
        done = await import_file(record, "ticket.json")
        assert (done.runs, done.format) == (1, "shop-desk")
        assert (await import_file(record, "ticket.json", "shop-desk")).skipped == 1
        (run,) = await record.store.runs()
        assert (run.session, run.name) == ("ticket/7", "desk")


def test_gesta_import_takes_it_and_a_broken_one_beside_it_is_named_and_ends_nothing(site: Path):
    installed(site, "shop-desk", "desk_importer:FORMATS", "desk_importer", DESK)
    installed(site, "torn", "broken_importer:FORMATS", "broken_importer", "import nothing_of_that_name")
    done = gesta_command("import", "ticket.json", "trials.json", "--record", "r.gesta")
    assert done.exit_code == 0
    assert "ticket.json: 1 run, " in done.stdout
    assert "(shop-desk)" in done.stdout
    assert "(tau-bench)" in done.stdout
    why = "broken_importer:FORMATS of broken_importer: ModuleNotFoundError: No module named 'nothing_of_that_name'"
    assert done.stderr.strip() == f"An installed importer cannot be used: 'torn', {why}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("", "AttributeError: module 'broken_importer' has no attribute 'FORMATS'"),
        ("FORMATS = ()", "expected a tuple of Format(name='torn', read=…), found ()"),
        ("FORMATS = 7", "expected a tuple of Format(name='torn', read=…), found 7"),
        (DESK, "expected a tuple of Format(name='torn', read=…), found (Format(name='shop-desk'"),
    ],
)
def test_whoever_asks_for_a_broken_one_is_told_why(site: Path, text: str, why: str):
    installed(site, "torn", "broken_importer:FORMATS", "broken_importer", text)
    with pytest.raises(BadImport) as told:
        named(Source("ticket.json"), "torn")
    found = str(told.value)
    assert found.startswith("Cannot import 'ticket.json': the importer 'torn' cannot be used: broken_importer:FORMATS")
    assert why in found
    assert found.endswith("Nothing of it was imported.")
    with pytest.raises(BadImport, match="Not usable: 'torn'") as told:
        find_format(Source("ticket.json"))
    assert "its format is not known" in str(told.value)


def test_nobody_takes_the_name_or_the_files_of_a_format_of_gesta(site: Path):
    text = DESK.replace('"shop-desk", "tickets with their talk", "object"', '"tau-bench", "", "list"')
    installed(
        site, "tau-bench", "desk_importer:FORMATS", "desk_importer", text.replace('("ticket", "talk")', '("traj",)')
    )
    assert find_format(Source("trials.json")).read is named(Source("trials.json"), "tau-bench").read
    assert named(Source("trials.json"), "tau-bench").read.__module__ == OWN["tau-bench"]
    assert list(formats().broken) == ["tau-bench"]
    assert formats().broken["tau-bench"].endswith("there is a format of that name already")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (DESK.replace("each_document(source, oddities, ticket)", "1 / 0"), "ZeroDivisionError: division by zero"),
        (DESK.replace('document.value["talk"]', 'document.value["said"]'), "KeyError: 'said'"),
        (DESK.replace('chat.finish("answered", None)', "[]"), "TypeError: conversation '7' does not begin with"),
        (DESK.replace('Foreign(id=id, name="desk", digest=digest, entries', "dict(entries"), "AttributeError"),
    ],
)
async def test_one_that_fails_at_a_file_writes_nothing_and_lets_the_others_be(site: Path, text: str, why: str):
    installed(site, "shop-desk", "desk_importer:FORMATS", "desk_importer", text)
    async with open_record() as record:
        with pytest.raises(BadImport) as told:
            await import_file(record, "ticket.json")
        assert f"the importer 'shop-desk' failed: {why}" in str(told.value)
        assert await record.store.runs() == []
        assert (await import_file(record, "trials.json")).runs == 1


def test_each_format_of_gesta_is_there_under_its_name():
    known = formats()
    assert known.broken == {}
    assert list(dict.fromkeys(one.name for one in known.formats)) == list(OWN)


def test_no_importer_is_loaded_before_one_is_asked_for():
    code = "import sys, gesta, gesta.cli; print([name for name in sys.modules if name.startswith('gesta.importers')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
