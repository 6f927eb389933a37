"""The time zone of a contact, with the source that it was taken from.

It is the first that is known: the custom field `time_zone`, the zone of the phone number, the zone of the country, the
account's. A number or a country whose clocks differ, such as one of the United States without an area, decides nothing.
"""

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast
from zoneinfo import ZoneInfo

from appliance.storage.database import rows, scalar

ZoneSource = Literal["data", "phone", "country", "account"]
SOURCES: tuple[ZoneSource, ...] = ("data", "phone", "country", "account")
_DATA_ZONE = "named_zone(c.data ->> '$.time_zone')"
_PHONE_ZONE = (
    "phone_zone((SELECT z.key FROM channel z WHERE z.contact_id = c.id AND z.kind = 'phone' "
    "ORDER BY z.subscribed DESC, z.id LIMIT 1))"
)
_COUNTRY_ZONE = "country_zone(c.country_code)"
# The zone of contact `c` as SQL. `coalesce` computes no more values than it needs.
ZONE_SQL = f"coalesce({_DATA_ZONE}, {_PHONE_ZONE}, {_COUNTRY_ZONE}, :account_zone)"
# The source and the zone of contact `c` as SQL, with a space between them.
SOURCE_AND_ZONE_SQL = (
    f"coalesce('data ' || {_DATA_ZONE}, 'phone ' || {_PHONE_ZONE}, 'country ' || {_COUNTRY_ZONE}, "
    "'account ' || :account_zone)"
)
_SELECT_ZONES = f"SELECT c.id, {SOURCE_AND_ZONE_SQL} FROM contact c WHERE c.id IN (SELECT value FROM json_each(:ids))"


class LocalZone(NamedTuple):
    """The time zone of a contact, and where it comes from."""

    zone: ZoneInfo
    source: ZoneSource


def get_account_zone(account_id: int) -> LocalZone:
    """Return the time zone of an account."""
    return LocalZone(ZoneInfo(str(scalar("SELECT time_zone FROM account WHERE id = ?", (account_id,)))), "account")


def split_source(text: str) -> tuple[ZoneSource, str]:
    """Return the source and the name of the zone in a value of `SOURCE_AND_ZONE_SQL`."""
    source, _, name = text.partition(" ")
    return cast(ZoneSource, source), name


def find_zones(account_id: int, contact_ids: Sequence[int]) -> dict[int, LocalZone]:
    """Return the time zone of each contact that exists, by id."""
    values = {"account_zone": get_account_zone(account_id).zone.key, "ids": json.dumps(list(contact_ids))}
    zones = {}
    for contact_id, text in rows(_SELECT_ZONES, values):
        source, name = split_source(text)
        zones[contact_id] = LocalZone(ZoneInfo(name), source)
    return zones
