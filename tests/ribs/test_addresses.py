"""A record is found by its path, whether that is text or a `pathlib.Path`; what is no address says what one is."""

from pathlib import Path
from typing import Any

import anyio
import pytest

import gesta
from gesta.errors import BadAddress


def agent() -> gesta.Agent:
    return gesta.Agent("desk", model=gesta.scripted("Hello."))


async def test_a_record_is_opened_by_a_path(tmp_path: Path):
    path = tmp_path / "shop.gesta"
    async with gesta.open(path) as record:
        run = (await record.run(agent(), "Hi")).run
        assert record.info.address == str(path)
    async with gesta.open(path, readonly=True) as record:
        assert (await record.find("last")).run == run


def test_the_synchronous_door_takes_paths(tmp_path: Path):
    path = tmp_path / "shop.gesta"
    run = gesta.run_sync(agent(), "Hi", record=path).run
    with gesta.open_sync(path) as record:
        assert record.find("last").run == run
    replaying = gesta.Agent("desk", model=gesta.replay(path))
    assert gesta.run_sync(replaying, "Hi").answer == "Hello."


@pytest.mark.parametrize("address", [5, None, b"shop.gesta", ["shop.gesta"]])
def test_what_is_no_address_is_refused(address: Any):
    async def opened() -> None:
        async with gesta.open(address):
            pass

    for attempt in (lambda: anyio.run(opened), lambda: gesta.open_sync(address).__enter__()):
        with pytest.raises(BadAddress) as refused:
            attempt()
        assert str(refused.value) == (
            f"The address of a record is {address!r}, expected a path such as 'shop.gesta', ':memory:' or "
            "'postgresql://user@host/database'."
        )
