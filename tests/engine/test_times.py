"""Points in time as text and back."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.engine.plain import parse_time, utc_text

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
READ = {
    "2026-11-16T12:00:00Z": NOON,
    "2026-11-16T12:00:00.000000Z": NOON,
    "2026-11-16T13:00:00+01:00": NOON,
    "2026-11-16T12:00:00": NOON,
    "2026-11-16 12:00:00+00:00": NOON,
    "2026-11-16": NOON.replace(hour=0),
    date(2026, 11, 16): NOON.replace(hour=0),
    NOON: NOON,
}


@pytest.mark.parametrize(("text", "moment"), READ.items())
def test_a_time_is_read_as_utc_unless_it_says_otherwise(text, moment):
    assert parse_time(text) == moment
    assert parse_time(text).tzinfo is not None


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", None, 5])
def test_what_is_no_time_is_told(text):
    with pytest.raises(ValueError, match=r"isoformat|month"):
        parse_time(text)


def test_a_time_is_written_in_utc():
    there = NOON.astimezone(timezone(timedelta(hours=9))) + timedelta(microseconds=1500)
    assert utc_text(there) == "2026-11-16T12:00:00Z"
    assert utc_text(there, timespec="microseconds") == "2026-11-16T12:00:00.001500Z"


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_again(moment):
    assert parse_time(utc_text(moment, timespec="microseconds")) == moment
