"""Find what a database from another place has or lacks compared with the schema of this program.

A restored backup and a promoted copy come from places that others may write to. A trigger in them could change data
later, and for example resume sending that was stopped.
"""

import re
from typing import Any

from appliance.storage import database as sql
from appliance.storage import models

_INDEX_TRIGGER = re.compile(r"contact_data_[0-9a-f]{16}_(added|changed|gone)")


def find_foreign_objects(handle: Any, *, with_indexes: bool = False) -> list[str]:
    """Return the names of the triggers and views in the database of an apsw connection.

    SQLite reads types in any case, so a trigger may have the type `TRIGGER`; only the exact types of tables and indexes
    are ours. `with_indexes` leaves out the triggers of indexes on custom data, which `query_plan.drop_indexes` drops.
    """
    names = handle.execute("SELECT name FROM sqlite_schema WHERE type IS NULL OR type NOT IN ('table', 'index')")
    return [str(name) for (name,) in names.fetchall() if not (with_indexes and _INDEX_TRIGGER.fullmatch(str(name)))]


def find_missing_columns() -> list[str]:
    """Return the columns of the current schema that the open database lacks, as `table.column`."""
    columns = sql.list_columns(sql.connection())
    return [
        f"{model._meta.table_name}.{column}"
        for model in models.ALL
        for column in model._meta.columns
        if column not in columns.get(model._meta.table_name, ())
    ]
