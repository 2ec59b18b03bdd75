"""Draws the pictures of docs/viewer.md anew: `python -m tests.pictures` looks at the demo and at recorded conversations.

It needs Debian's Chromium, Playwright (`pip install -e '.[test,browser]'`) and the corpus beside the repository.
"""

import base64
import importlib
import os
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browsing import aside, browsing, looking
from tests.commands import gesta_command
from tests.conftest import CORPUS
from tests.viewing import TOKEN, viewed

import gesta

TARGET = Path(__file__).resolve().parents[1] / "docs" / "img"
MOST_BYTES = 150_000
SIZE = {"width": 1240, "height": 780}
RECORDED = (
    "swe-agent/traj/*.traj.gz",
    "tau2-bench/results/retail-toolorchestra-gpt-5.json.gz",
    "who-and-when/algorithm-generated.jsonl.gz",
)


def made(folder: Path) -> tuple[Path, Path, str]:
    """Return a record of the demo, one of recorded conversations, and the run of the demo that was killed."""
    shop, recorded = folder / "shop.gesta", folder / "recorded.gesta"
    assert gesta_command("demo", "--yes", "--record", str(shop)).exit_code == 0
    for pattern in RECORDED:
        for each in sorted(CORPUS.glob(pattern)):
            gesta_command("import", str(each), "--record", str(recorded))
    with gesta.open_sync(shop, readonly=True) as record:
        return shop, recorded, next(each.runs[0] for each in record.sessions() if each.name == "demo-1-crash")


def story(page: Any) -> None:
    page.locator(".story").first.wait_for()
    page.locator(".story").first.evaluate("each => { each.closest('.turn').scrollIntoView(); scrollBy(0, 16); }")


def lineage(page: Any) -> None:
    page.locator(".graph .card.target").wait_for()
    page.locator(".graph .card.Resolution").hover()


def drawn(page: Any) -> None:
    page.locator(".lane").first.wait_for()


def listed(page: Any) -> None:
    page.locator(".sessions .row").first.wait_for()


PICTURES: dict[str, tuple[str, str, Callable[[Any], None]]] = {
    "viewer-run": ("light", "/r/0/run/{run}", story),
    "viewer-why": ("light", "/r/0/run/{run}/why/41", lineage),
    "viewer-time": ("dark", "/r/0/run/{run}/time", drawn),
    "viewer-sessions": ("light", "/r/1", listed),
}
"""For each picture the scheme of colours, the address, and what is awaited and done there."""


COLOURS = """async (data) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob()), { width, height } = image;
    const canvas = new OffscreenCanvas(width, height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    const pixels = new Uint32Array(canvas.getImageData(0, 0, width, height).data.buffer), counts = new Map();
    for (const each of pixels) counts.set(each, (counts.get(each) ?? 0) + 1);
    const kept = [...counts.entries()].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([each]) => [each & 255, each >> 8 & 255, each >> 16 & 255]);
    const far = (a, b) => a.reduce((sum, each, at) => sum + (each - b[at]) ** 2, 0), places = new Map();
    for (const each of counts.keys()) {
        const own = [each & 255, each >> 8 & 255, each >> 16 & 255];
        let best = 0;
        for (let at = 1; at < kept.length; at += 1) if (far(own, kept[at]) < far(own, kept[best])) best = at;
        places.set(each, best);
    }
    return { width, height, kept, rows: Array.from(pixels, (each) => String.fromCharCode(places.get(each))).join("") };
}"""
"""Returns the 256 most frequent colours of a PNG, and for each of its points the nearest of them."""


def packed(browser: Any, data: bytes) -> bytes:
    """Return a PNG with at most 256 colours, which is a third of the size."""
    page = browser.new_page()
    found = page.evaluate(COLOURS, base64.b64encode(data).decode())
    page.close()
    width, height, rows = found["width"], found["height"], found["rows"].encode("latin-1")
    lines = b"".join(b"\0" + rows[at : at + width] for at in range(0, len(rows), width))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": b"".join(bytes(each) for each in found["kept"]),
        b"IDAT": zlib.compress(lines, 9),
        b"IEND": b"",
    }
    written = (
        struct.pack(">I", len(each)) + name + each + struct.pack(">I", zlib.crc32(name + each))
        for name, each in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def main() -> None:
    sync_api = importlib.import_module("playwright.sync_api")  # of the extra `browser`
    with tempfile.TemporaryDirectory() as folder, browsing(sync_api) as browser:
        shop, recorded, run = aside(lambda: made(Path(folder)))
        with viewed(shop, recorded) as address:
            for name, (scheme, path, ready) in PICTURES.items():
                with looking(browser, color_scheme=scheme) as page:
                    page.set_viewport_size(SIZE)
                    page.goto(f"{address}{path.format(run=run)}?token={TOKEN}")
                    ready(page)
                    page.evaluate("new Promise((done) => setTimeout(done, 300))")
                    data = packed(browser, page.screenshot())
                    (TARGET / f"{name}.png").write_bytes(data)
                    assert len(data) < MOST_BYTES, (name, len(data))
                    print(f"{name}.png, {len(data):,} bytes")


if __name__ == "__main__":
    os.environ.pop("GESTA_RECORD", None)
    main()
