"""Contacts and channels to and from their tables by statements made once; building each anew costs more than it does.

The objects are Peewee's own, so that everybody reads them as usual.
"""

from typing import Any, Generic, TypeVar

from peewee import BooleanField

from appliance.storage.models import Channel, Contact
from appliance.storage.models.kinds import Json, Table
from appliance.storage.open import connection, rows

M = TypeVar("M", bound=Table)


class Records(Generic[M]):
    """The statements of one table."""

    def __init__(self, model: type[M]) -> None:
        self._model = model
        self._fields = {field.name: field for field in model._meta.sorted_fields}
        self._columns = {name: field.column_name for name, field in self._fields.items()}
        self._read = [
            (place, field.python_value)
            for place, field in enumerate(self._fields.values())
            if isinstance(field, Json | BooleanField)
        ]
        self._table = model._meta.table_name
        self._select = f"SELECT {', '.join(self._columns.values())} FROM {self._table} "
        self._updates: dict[tuple[str, ...], str] = {}
        names = [name for name in self._fields if name != "id"]
        self._insert = (
            names,
            f"INSERT INTO {self._table} ({', '.join(self._columns[name] for name in names)}) "
            f"VALUES ({', '.join('?' * len(names))}) RETURNING id",
        )

    def find(self, where: str, parameters: Any = ()) -> list[M]:
        """Return the rows that a condition names (it may end in ORDER BY)."""
        return [self._made(list(row)) for row in rows(f"{self._select} WHERE {where}", parameters)]

    def _made(self, values: list[Any]) -> M:
        for place, read in self._read:
            values[place] = read(values[place])
        made = self._model(__no_default__=1)
        made.__data__.update(zip(self._fields, values, strict=True))
        made._dirty.clear()
        return made

    def insert(self, row: M) -> None:
        """Write a new row and give it its id."""
        names, sql = self._insert
        row.id = connection().execute(sql, [self._value(row, name) for name in names]).fetchall()[0][0]
        row._dirty.clear()

    def save(self, row: M) -> None:
        """Write what was set since the row was read; indexes of other columns are not touched."""
        names = tuple(name for name in self._fields if name in row._dirty and name != "id")
        if not names:
            return
        sql = self._updates.get(names)
        if sql is None:
            marks = ", ".join(f"{self._columns[name]} = ?" for name in names)
            sql = self._updates[names] = f"UPDATE {self._table} SET {marks} WHERE id = ?"
        connection().execute(sql, [*(self._value(row, name) for name in names), row.id])
        row._dirty.clear()

    def _value(self, row: M, name: str) -> Any:
        field = self._fields[name]
        value = row.__data__.get(name)
        return field.db_value(value) if isinstance(field, Json) else value


CONTACTS: Records[Contact] = Records(Contact)
CHANNELS: Records[Channel] = Records(Channel)
