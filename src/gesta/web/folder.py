"""Writes some runs as a folder of pages that opens from a disk: the answers of the viewer, stored in files.

A record is the store of all runs, and a run is a list of entries. The folder has one page and one script. It has one
data file for each request that the page would send to a server. A page opened from a disk may load only scripts, so a
data file is a script that contains a JSON text. The methods that yield files yield pairs of the name and the bytes of
each. The viewer's answers contain no declared secret, so the files contain none.
"""

import html
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from anyio.to_thread import run_sync
from msgspec import Struct, field
from starlette.types import Message

from gesta.cli.talk import Stop
from gesta.entry import utc_text
from gesta.errors import GestaError
from gesta.store import RunRow
from gesta.web.app import MODULE, STATIC, Viewer, modules
from gesta.web.copied import MESSAGES, Room, forms, sent, timeline
from gesta.web.data import Pages
from gesta.web.one_script import BadModule, one_script

POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; "
    "base-uri 'none'; form-action 'none'"
)
"""The content security policy of the page: it loads nothing but the files beside it, and sends nothing."""
MARK = "gesta-copy.json"
"""Name of a file that marks a folder as a copy. `gesta view --export` replaces only a folder that has this file."""
PARTS = ".gesta-part"
"""Name of the folder that holds the new files until all of them are written."""
OWN = re.compile(r"index\.html|gesta\.js|style\.css|icon\.svg|data|gesta-copy\.json|\.gesta-part")
DATA = re.compile(r"[a-z0-9.-]+\.(?:js|bin)")
PAGE = 200
"""Number of entries in one data file."""
WHY_BYTES = 20_000_000
"""Once the copied explanations have this many bytes together, the explanations of older answers are left out."""
LARGEST = 20_000_000
"""Greatest size in bytes of the whole text of one entry; the text of a larger entry is left out."""
TOKEN = "the-token-of-a-viewer-that-listens-nowhere"  # noqa: S105 - it opens nothing


class Copied(Struct):
    """The result of a copy: the folder, and counts of copied things and of things left out."""

    folder: str
    runs: int = 0
    entries: int = 0
    files: int = 0
    bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """Counts of things left out: `why` (explanations), `entries` (whole texts), `files`, `requests` (to the model)."""


class FolderCopy:
    """Sends the viewer every request that the pages would make about some runs, and stores each answer in a file."""

    def __init__(self, pages: Pages, rows: Sequence[RunRow], told: Callable[[int], None]) -> None:
        """Prepare a copy; nothing is written yet.

        Args:
            rows: the runs to copy; the page opens with the first of these runs.
            told: called after each file with the number of files written so far.
        """
        self._pages, self._rows, self._told = pages, rows, told
        self._app = Viewer([pages]).app(TOKEN)
        pages.evidence.large = sys.maxsize  # runs of any length are checked, because no person waits for the answer

    async def write(self, folder: Path) -> Copied:
        """Write the folder, and return counts of its content. If a file cannot be written, the folder stays as it was.

        Raises:
            Stop: the folder contains something other than an earlier copy, or it cannot be written.
        """
        done = Copied(str(folder), runs=len(self._rows))
        with _staged(folder) as parts:
            async for name, data in self._files(done):
                size = await run_sync((parts / name).write_bytes, data)
                done.files, done.bytes = done.files + 1, done.bytes + size
                self._told(done.files)
        return done

    async def _files(self, done: Copied) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the name and the bytes of each file of the copy. Count in `done` the things copied and left out."""
        heads, answers, room = list[int](), list[tuple[int, list[int]]](), Room()
        for place, row in enumerate(self._rows):
            glance = await self._said(row.run, "")
            heads.append(json.loads(glance)["head"])
            answers.append((place, []))
            yield _file(f"{place}-run", glance)
            yield _file(f"{place}-evidence", await self._said(row.run, "evidence"))
            async for address, data in self._views(row.run, heads[-1], room):
                raw = address.endswith(("/lines", "/body"))
                name = _name(place, address)
                yield (f"data/{name}.bin", data) if raw else _file(name, data)
            for number in range(-(-heads[-1] // PAGE)):
                first = number * PAGE
                lines = json.loads(await self._said(row.run, f"lines?after={first}&limit={PAGE}"))
                lines = [line for line in lines if line["seq"] <= first + PAGE]
                done.entries += len(lines)
                for line in lines:
                    async for each in self._beside(place, line, done):
                        yield each
                yield _file(f"{place}-lines-{number}", _json(lines))
                answers[-1][1].extend(line["seq"] for line in lines if line["kind"] == "assistant")
        async for each in self._whys(answers, done):
            yield each
        if room.left_out:
            done.left_out["requests"] = room.left_out
        yield _file("waiting", await self._waiting())
        for each in _pages(await self._facts(heads)):
            yield each

    async def _views(self, run: str, head: int, room: Room) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the viewer's answers about a run, each with its address: timeline, exports and requests to the model.

        Args:
            head: seq (number in the run) of the last entry.
            room: counts the bytes of requests to the model, which are left out beyond a limit.
        """

        async def said(rest: str) -> bytes:
            return await self._said(run, rest)

        for views in (timeline(said), forms(said), sent(said, head, room)):
            async for each in views:
                yield each

    async def _beside(self, place: int, line: dict[str, Any], done: Copied) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the files that the page loads when a person opens a line: the whole entry, its images and its files.

        A file whose bytes are missing from the record is removed from the line.

        Args:
            place: place of the run among the copied runs.
            line: an entry, as the page lists it.
            done: counts what is left out.
        """
        run, entry = self._rows[place].run, f"entries/{line['seq']}"
        if line.get("more"):
            found = await self._said(run, entry)
            if len(found) > LARGEST:
                _count(done, "entries")
            yield _file(_name(place, entry), found if len(found) <= LARGEST else b"null")
        for part in [*line.get("parts", ())]:
            if "url" not in part:
                file = f"{entry}/files/{part['place']}"
                try:
                    yield f"data/{_name(place, file)}.bin", await self._said(run, file)
                except GestaError:  # its blob is not there
                    _count(done, "files")
                    line["parts"].remove(part)

    async def _whys(self, answers: list[tuple[int, list[int]]], done: Copied) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the files that explain the agents' answers: first each run's last answer, then the earlier answers.

        Args:
            answers: for each run its place among the copied runs, and the seqs (entry numbers) of its answers.
            done: counts the explanations that are left out because they would be too large.
        """
        last = [(place, found[-1]) for place, found in answers if found]
        others = [(place, seq) for place, found in answers for seq in found[-2::-1]]
        size = 0
        for place, seq in last + others:
            if size > WHY_BYTES:
                _count(done, "why")
            for what in (f"why?entry={seq}", f"graph?entry={seq}", f"graph?all=1&entry={seq}"):
                made = await self._said(self._rows[place].run, what) if size <= WHY_BYTES else b"null"
                size += len(made)
                yield _file(_name(place, what), made)

    async def _waiting(self) -> bytes:
        found = json.loads(await self._asked("/api/0/waiting"))
        runs = {row.run for row in self._rows}
        own = [each | {"answerable": False} for each in found["waiting"] if each["wait"]["run"] in runs]
        return _json({"waiting": own, "by": ""})

    async def _facts(self, heads: list[int]) -> dict[str, Any]:
        """Return facts about the copy for the page's script: its time, the record, and the runs.

        Args:
            heads: for each run, the number of its last entry.
        """
        about = await self._pages.about()
        kept = {"name": about["name"], "id": about["id"], "runs": len(self._rows), "agents": []}
        runs = [row.run for row in self._rows]
        return {
            "at": utc_text(self._pages.record.now()),
            "about": kept,
            "runs": runs,
            "heads": heads,
            "page": PAGE,
            "messages": MESSAGES,
        }

    async def _said(self, run: str, rest: str) -> bytes:
        return await self._asked(f"/api/0/runs/{quote(run, safe='')}{'/' if rest else ''}{rest}")

    async def _asked(self, address: str) -> bytes:
        """Return the viewer's answer to a request, made inside this process without a network.

        Raises GestaError if the viewer refuses the request.
        """
        path, _, query = address.partition("?")
        headers = [(b"host", b"127.0.0.1:0"), (b"cookie", f"gesta-0={TOKEN}".encode())]
        scope = {"type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(), "headers": headers}
        body, status = bytearray(), list[int]()

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            status.extend([message["status"]] if message["type"] == "http.response.start" else [])
            body.extend(message.get("body", b""))

        await self._app(
            {**scope, "query_string": query.encode(), "http_version": "1.1", "root_path": ""}, receive, send
        )
        if status != [200]:
            raise GestaError(f"{address}: {json.loads(body)['error']['message']}")
        return bytes(body)


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write to.

    After the block, the files are moved to `folder` or, if the block failed, removed.

    Raises:
        Stop: `folder` contains other files than an earlier copy, or cannot be written.
    """
    made, parts = not folder.exists(), folder / PARTS
    _check(folder)
    try:
        shutil.rmtree(parts, ignore_errors=True)
        (parts / "data").mkdir(parents=True)
        yield parts
        shutil.rmtree(folder / "data", ignore_errors=True)
        for each in sorted(parts.iterdir(), key=lambda path: path.name != MARK):
            each.replace(folder / each.name)
    except OSError as error:
        raise Stop(f"--export {folder}: {error.strerror or error}. Name a folder that you may write.") from error
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        if made:
            with suppress(OSError):
                folder.rmdir()  # if nothing was put there


def _check(folder: Path) -> None:
    """Raise Stop if the folder contains a file that no earlier copy wrote, or if `folder` is a file itself."""
    if folder.exists() and not folder.is_dir():
        raise Stop(f"--export {folder}: this is a file. Name a folder that is new or empty.")
    found = sorted(folder.iterdir()) if folder.exists() else []
    mine = all(OWN.fullmatch(each.name) for each in found) and any(each.name in (MARK, PARTS) for each in found)
    inside = sorted((folder / "data").iterdir()) if mine and (folder / "data").is_dir() else []
    strange = [each for each in found if not mine] + [each for each in inside if not DATA.fullmatch(each.name)]
    if strange:
        name = strange[0].relative_to(folder)
        raise Stop(
            f"--export {folder}: it holds {str(name)!r}, which may be yours; nothing was written. Name a folder that "
            "is new or empty, or one that `gesta view --export` wrote."
        )


def _pages(facts: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Return the name and the bytes of the files that every copy has: page, style, icon, script and the file `MARK`.

    Args:
        facts: the facts about the copy as `_facts` returns them. The page and the file `MARK` contain them.
    """
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    if MODULE not in page:
        raise BadModule(f"index.html does not load the pages by {MODULE}.")
    copy = html.escape(json.dumps(facts))
    page = page.replace(MODULE, f'<script defer src="gesta.js" data-copy="{copy}"></script>').replace("/static/", "")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">\n'
    page = page.replace('<meta charset="utf-8">\n', f'<meta charset="utf-8">\n{policy}', 1)
    kept = {name: (STATIC / name).read_text(encoding="utf-8") for name in ("style.css", "icon.svg")}
    script = one_script(modules(), "app.js", {"source.js": "folder.js"})
    what = {"what": "A copy of a part of a Gesta record, to be looked at.", "at": facts["at"], "record": facts["about"]}
    texts = kept | {"gesta.js": script, "index.html": page, MARK: f"{json.dumps(what, indent=1)}\n"}
    return [(name, text.encode()) for name, text in texts.items()]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _file(name: str, data: bytes) -> tuple[str, bytes]:
    """Return the name and the bytes of a data file. Its JSON is escaped, so that it cannot end the script early."""
    inside = json.dumps(data.decode(), ensure_ascii=False).replace("<", "\\u003c")
    inside = inside.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"data/{name}.js", f'gestaData("{name}", {inside});\n'.encode()


def _name(place: int, address: str) -> str:
    """Return the name of the data file for a request about a run. folder.js computes the same name in the browser.

    Args:
        place: place of the run among the copied runs, from 0.
        address: the part of the request's address after the run.
    """
    path, _, query = address.partition("?")
    return "-".join([str(place), *path.split("/"), *(part for pair in sorted(parse_qsl(query)) for part in pair)])


def _count(done: Copied, what: str) -> None:
    done.left_out[what] = done.left_out.get(what, 0) + 1
