"""Column types that our tables share, and their base."""

from typing import TYPE_CHECKING, Any

import msgspec
from peewee import BigIntegerField, Model, TextField
from playhouse.sqlite_ext import AutoIncrementField

from appliance.storage.open import database

_encode = msgspec.json.Encoder()


class Table(Model):
    """Base of every table: columns and indexes only, no behaviour."""

    id = AutoIncrementField()  # ascending and never reused (docs/decisions.md#1)

    if TYPE_CHECKING:
        # Columns of foreign keys (`account_id`) and what loaders add are known only at run time
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    class Meta:
        database = database
        legacy_table_names = False


class Time(BigIntegerField):
    """A moment in whole milliseconds since 1970 UTC."""


class Json(TextField):
    """A JSON value kept as text."""

    def db_value(self, value: Any) -> str | None:
        """Encode on the way in."""
        return None if value is None else _encode.encode(value).decode()

    def python_value(self, value: str | None) -> Any:
        """Decode on the way out."""
        return None if value is None else msgspec.json.decode(value)
