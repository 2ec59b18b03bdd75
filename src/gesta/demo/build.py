"""Makes the file `shop.db` from `shop.sql`: `python -m gesta.demo.build`."""

import sqlite3
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent


def build(target: Path = HERE / "shop.db") -> Path:
    """Make the shop's file from `shop.sql`, and return its path. An existing file is replaced."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target)) as shop:
        shop.executescript((HERE / "shop.sql").read_text(encoding="utf-8"))
        shop.execute("VACUUM")
    return target


if __name__ == "__main__":
    print(build())
