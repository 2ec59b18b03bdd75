"""Times of rows are text whose order is the order of time."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from gesta.entry import utc_text, utc_time


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_is_written_with_all_its_microseconds_and_a_z(at: datetime) -> None:
    text = utc_text(at)
    assert text == at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    assert utc_time(text) == at


def test_a_time_of_another_zone_is_written_in_utc() -> None:
    at = datetime(2026, 1, 1, 1, 30, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert utc_text(at) == "2025-12-31T23:30:00.000005Z"
