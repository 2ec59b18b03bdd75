"""A record is found by its path, whether that is text or a `pathlib.Path`; what is not an address says what one is."""

import math
from pathlib import Path
from typing import Any

import anyio
import pytest

import gesta
from gesta.errors import BadAddress, RecordError
from gesta.store import QueryBounds


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


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("durability", "fast", "'synced' or 'normal'"),
        ("busy_s", -1, "a number of seconds from 0 on"),
        ("busy_s", "3", "a number of seconds from 0 on"),
        ("grace_s", math.nan, "a number of seconds from 0 on"),
        ("readonly", "no", "True or False"),
        ("queries", 3, "gesta.store.QueryBounds(...)"),
        ("gone", None, "a function of the name of a process"),
    ],
)
def test_an_option_that_cannot_work_is_refused_and_no_file_is_made(
    tmp_path: Path, option: str, value: Any, expected: str
):
    place = tmp_path / "shop.gesta"
    with pytest.raises(RecordError) as refused, gesta.open_sync(place, **{option: value}):
        pass
    assert str(refused.value) == f"gesta.open({option}={value!r}): expected {expected}."
    assert not place.exists()


@pytest.mark.parametrize("value", [-1, math.nan, "3", True])
def test_a_bound_of_queries_that_bounds_nothing_is_refused(value: Any):
    with pytest.raises(RecordError, match="expected a number from 0 on, or None"):
        QueryBounds(seconds=value)
