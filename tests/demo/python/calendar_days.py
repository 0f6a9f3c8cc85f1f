"""Days on which a shop delivers."""

from dateutil.rrule import DAILY, rrule


def deliveries(start, end):
    """The days from start to end, both included, on which the shop delivers: no Sundays."""
    return [day.date() for day in rrule(DAILY, dtstart=start, until=end)]
