"""The triggers of each connection that writes. They are temporary, so that a database from another place has none."""

from typing import Any

from appliance.storage.models.time_zones import ZONE_TRIGGERS

_EXISTING = (
    "SELECT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE name = 'contact_zone') "
    "AND NOT EXISTS (SELECT 1 FROM temp.sqlite_schema WHERE type = 'trigger' AND tbl_name = 'contact')"
)


def install(handle: Any) -> None:
    """Create the triggers of an apsw connection, unless it has them or its database is from before they were needed."""
    if handle.execute(_EXISTING).fetchall() == [(1,)]:
        for statement in ZONE_TRIGGERS:
            handle.execute(statement).fetchall()
