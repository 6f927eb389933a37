"""Tables with the time zone of each contact, and the triggers that mark it when it may have changed."""

from peewee import SQL, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.storage.database import Table
from appliance.storage.models.account import Contact


class TimeZone(Table):
    """The name of a time zone, so that `ContactZone` stores numbers. The rows stay when a zone no longer exists."""

    name = TextField(unique=True)


class ContactZone(Table):
    """The time zone of a contact, stored so that the audience of a campaign is fixed without computing it.

    It is that of `audience.time_zones`. A row that the triggers below have marked, and a contact without a row, is
    computed by `audience.stored_zones`.
    """

    contact = ForeignKeyField(Contact, primary_key=True, on_delete="CASCADE")
    time_zone_id = IntegerField(null=True)  # of `TimeZone`; null: the zone of the account
    source = IntegerField(null=True)  # where it is from: its place in `time_zones.SOURCES`; null: the account
    is_stale = BooleanField(default=False)


ContactZone.add_index(SQL("CREATE INDEX contact_zone_stale ON contact_zone (contact_id) WHERE is_stale"))
# What changes the zone of a contact. Each connection that writes has these triggers (`storage/triggers.py`).
_MARK_ZONE = "UPDATE contact_zone SET is_stale = 1 WHERE contact_id"
ZONE_TRIGGERS = (
    "CREATE TEMP TRIGGER contact_zone_changed AFTER UPDATE OF data, country_code ON main.contact "
    "WHEN old.country_code IS NOT new.country_code "
    # A damaged value is no error: the contact could not be repaired
    "OR iif(json_valid(old.data), old.data ->> '$.time_zone', '') "
    "IS NOT iif(json_valid(new.data), new.data ->> '$.time_zone', '') "
    f"BEGIN {_MARK_ZONE} = new.id; END",
    "CREATE TEMP TRIGGER contact_zone_phone_added AFTER INSERT ON main.channel WHEN new.kind = 'phone' "
    f"BEGIN {_MARK_ZONE} = new.contact_id; END",
    "CREATE TEMP TRIGGER contact_zone_phone_changed AFTER UPDATE OF kind, key, contact_id, subscribed ON main.channel "
    "WHEN 'phone' IN (old.kind, new.kind) AND (old.kind IS NOT new.kind OR old.key IS NOT new.key "
    "OR old.contact_id IS NOT new.contact_id OR old.subscribed IS NOT new.subscribed) "
    f"BEGIN {_MARK_ZONE} IN (old.contact_id, new.contact_id); END",
    "CREATE TEMP TRIGGER contact_zone_phone_removed AFTER DELETE ON main.channel WHEN old.kind = 'phone' "
    f"BEGIN {_MARK_ZONE} = old.contact_id; END",
)
