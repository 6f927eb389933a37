"""The settings people change on a page: the layer between the file and the defaults."""

from typing import Any

import msgspec

from appliance import clock, config
from appliance.db.work import writing
from appliance.errors import Invalid
from appliance.tables import Setting


def read() -> dict[str, Any]:
    """Answer what was set on pages, by dotted name; a name that this version does not know is left out."""
    known = dict(config.leaves())
    return {row.name: row.value for row in Setting.select() if row.name in known}


def write(name: str, value: Any) -> None:
    """Keep a setting; it counts from the next start. Raises Invalid for an unknown name, a secret or a wrong value."""
    writing()
    info = dict(config.leaves()).get(name)
    if info is None or config.is_secret(info) or name == "data_dir":
        raise Invalid({name: ["cannot be set on a page"]})
    try:
        checked = msgspec.convert(value, info.type, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid({name: [str(error)]}) from None
    Setting.insert(name=name, value=checked, updated_at=clock.now_ms()).on_conflict_replace().execute()


def clear(name: str) -> None:
    """Forget a setting, so that the default counts again."""
    writing()
    Setting.delete().where(Setting.name == name).execute()
