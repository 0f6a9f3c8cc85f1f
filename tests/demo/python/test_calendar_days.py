from datetime import date, datetime

from calendar_days import deliveries


def test_a_week_has_six_deliveries():
    days = deliveries(datetime(2026, 11, 23), datetime(2026, 11, 29))
    assert len(days) == 6
    assert date(2026, 11, 29) not in days
