"""A store is a port: what every store does is in `gesta.testing`; here stands what the port itself says."""

from gesta.errors import RecordError
from gesta.store import Lease, QueryBounds


def test_a_query_that_passes_a_bound_says_which_and_how_to_raise_it() -> None:
    error = QueryBounds(rows=10).passed("SELECT 1", "rows")
    assert isinstance(error, RecordError)
    assert "more rows than 10" in str(error)
    assert "gesta sql --rows N" in str(error)


def test_a_lease_that_nobody_held_before_has_lost_nobody() -> None:
    assert not Lease(run="r", epoch=1, owner="p", head=0, digest=b"").lost
