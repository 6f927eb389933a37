"""One look at everything, for one account or for whoever runs the installation."""

from appliance import counted
from appliance.counted import Family
from appliance.metrics import machine, rows, text


def scrape(account_id: int | None) -> str:
    """Return all numbers as text: of the whole installation (None), or those of one account and no others.

    Of the machine an account sees nothing: how the database grows tells how much others send.
    """
    found: list[Family] = [*counted.families(account_id), *rows.families(account_id)]
    found += [] if account_id is not None else machine.families()
    return text.written(sorted(found, key=lambda one: one.name))
