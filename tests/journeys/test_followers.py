"""Those who follow hear every event once and in order, while the process that writes is killed again and again."""

from pathlib import Path

import pytest
from benchmarks.followers import Campaign, Size
from tests.conftest import FULL
from tests.postgres import Server


@pytest.mark.parametrize("store", ["file", *(["postgres"] if FULL else [])])
async def test_every_follower_hears_every_event_once_while_the_writer_is_killed(
    store: str, tmp_path: Path, postgres: Server
) -> None:
    place = postgres.address() if store == "postgres" else f"{tmp_path}/r.gesta"
    campaign = Campaign(place, Size(sessions=3, followers=12, steps=6, kills=1), seed=7)
    assert await campaign.run() == []
    assert campaign.again > 0
    assert len({len(heard) for heard in campaign.heard}) <= 3
