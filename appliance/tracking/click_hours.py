"""Count the clicks of each contact by the hour on their clock, from which campaigns take their best hour.

The first click on each message counts, unless it was by a machine, as `clicked_at` of the message has it. The hour is
that of the contact's time zone when the click is counted.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

from appliance.audience import time_zones
from appliance.storage.database import connection, run_set
from appliance.storage.transactions import require_write_transaction

_ADD = (
    "INSERT INTO click_hour (contact_id, hour, clicks) SELECT value ->> 0, value ->> 1, value ->> 2 "
    "FROM json_each(:items) WHERE true ON CONFLICT (contact_id, hour) DO UPDATE SET clicks = clicks + excluded.clicks"
)
_DELETE_EMPTY = "DELETE FROM click_hour WHERE contact_id = ? AND hour = ? AND clicks <= 0"


class FirstClick(NamedTuple):
    """The first click of a contact on a message, at a time in Unix milliseconds."""

    account_id: int
    contact_id: int
    at: int


def add_clicks(clicks: Collection[FirstClick]) -> None:
    """Count clicks in their hours."""
    require_write_transaction()
    if clicks:
        counts = Counter(_find_hours(clicks))
        run_set(_ADD, [(*key, number) for key, number in counts.items()])


def remove_click(click: FirstClick) -> None:
    """Count a click no longer, because it turned out to be by a machine."""
    require_write_transaction()
    for contact_id, hour in _find_hours([click]):
        run_set(_ADD, [(contact_id, hour, -1)])
        connection().execute(_DELETE_EMPTY, (contact_id, hour))


def _find_hours(clicks: Collection[FirstClick]) -> Iterator[tuple[int, int]]:
    """Yield (contact id, hour on their clock) of each click of a contact that exists."""
    for account_id in {click.account_id for click in clicks}:
        of_account = [click for click in clicks if click.account_id == account_id]
        zones = time_zones.find_zones(account_id, [click.contact_id for click in of_account])
        for click in of_account:
            if click.contact_id in zones:
                yield click.contact_id, datetime.fromtimestamp(click.at / 1000, zones[click.contact_id].zone).hour
