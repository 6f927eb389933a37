"""The stored time zones of contacts: the same as those that the rule computes, after whatever has changed."""

import random
import threading
from typing import Any

from appliance.audience import time_zones
from appliance.audience.contacts import removal
from appliance.core import time_zones as rules
from appliance.core.errors import Invalid
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import BY_API, Home

ZONES: list[Any] = ["Europe/Berlin", " Asia/Tokyo ", "Nowhere/City", 7, None]
COUNTRIES = ["DE", "JP", "US", None]
PHONES = ["+4930123456", "+12125550", "+81312345", "+331234567"]


def find_stored() -> dict[int, str]:
    """Return the stored zone by contact id, without those that must be computed."""
    values = {"known_to": time_zones.find_known_to()}
    join = time_zones.JOIN_STORED.removeprefix("LEFT ")
    stored = rows(f"SELECT c.id, z.time_zone_id FROM contact c {join}", values)
    names: dict[int, str] = dict(rows("SELECT id, name FROM time_zone"))
    account_zone = time_zones.get_account_zone(1).zone.key
    return {contact_id: account_zone if number is None else names[number] for contact_id, number in stored}


def change_something(home: Home, rng: random.Random, ids: list[int]) -> None:
    """Change a contact in a random way, or add or remove one."""
    contact_id = rng.choice(ids)
    phone = f"{rng.choice(PHONES)}{rng.randrange(1000, 9999)}"
    match rng.randrange(9):
        case 0:
            ids.append(home.contact(f"z{len(ids)}-{rng.random()}@example.org", country_code=rng.choice(COUNTRIES)).id)
        case 1:
            home.patch(contact_id, data_merge={"time_zone": rng.choice(ZONES)})
        case 2:
            home.patch(contact_id, country_code=rng.choice(COUNTRIES))
        case 3:
            home.patch(contact_id, phone=phone)
        case 4:
            transactions.write(run, "DELETE FROM channel WHERE contact_id = ? AND kind = 'phone'", (contact_id,))
        case 5:
            change = "UPDATE channel SET subscribed = NOT subscribed WHERE contact_id = ?"
            transactions.write(run, change, (contact_id,))
        case 6 if len(ids) > 3:
            ids.remove(contact_id)
            transactions.write(removal.merge, home.account_id, rng.choice(ids), contact_id, BY_API)
        case 7 if len(ids) > 3:
            ids.remove(contact_id)
            transactions.write(removal.delete, home.account_id, contact_id)
        case _:
            transactions.write(time_zones.fill_batch, rules.fingerprint_rules(), rng.randrange(1, 9))


def test_stored_zones_are_those_of_the_rule(home: Home) -> None:
    """What is stored is right after each change, and everything is stored once nothing is left to do."""
    rng = random.Random(26)
    ids = [home.contact(f"first{index}@example.org", country_code="DE").id for index in range(6)]
    compared = 0
    for _ in range(150):
        try:
            change_something(home, rng, ids)
        except Invalid:  # two contacts cannot have one phone number, or a merged one too many
            continue
        stored = find_stored()
        computed = time_zones.find_zones(home.account_id, ids)
        assert stored == {contact_id: computed[contact_id].zone.key for contact_id in stored}
        compared += len(stored)
    assert compared > 300
    time_zones.fill(threading.Event())
    assert find_stored().keys() == set(ids) and not time_zones.is_due()
    assert len(set(find_stored().values())) > 2
