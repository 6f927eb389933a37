"""One rule as it stands in a form: what was chosen so far, what goes with it, and the filter that it means."""

from typing import Any

from appliance.filters import fields
from appliance.filters.fields import Field
from appliance.filters.predicates import BY_TYPE
from appliance.filters.read import GROUPS
from appliance.filters.scope import Place
from ui import filter_values

ANY_DATA = "contact_data.*"
ANY_EVENT = "event:*"
ANY_EVENT_DATA = "event.*"
# What a row may say besides field, predicate and values
MORE = ("often", "times", "times_to", "when", "days", "since", "machine", "path", "kind", "was", "as")
_FIRST = {"time": "within_days", "number": "gteq", "tags": "cont", "history": "performed", "group": "any",
          "boolean": "true", "text": "eq", "code": "eq", "json": "eq", "id": "eq"}  # fmt: skip


class Row:
    """One rule as it stands in a form; `rows` are the rules of a group, or of the data of an event."""

    def __init__(self, key: str, name: str = "", predicate: str = "", values: list[str] | None = None) -> None:
        self.key = key
        self.name = name
        self.predicate = predicate
        self.values = values or []
        self.more: dict[str, str] = {}
        self.rows: list[Row] = []
        self.error = ""
        self.path = ""
        # For the page: what is offered here, and how many people the rule alone lets through
        self.offer: Any = None
        self.share: Any = None

    def __getitem__(self, name: str) -> str:
        return self.more.get(name, "")

    @property
    def field(self) -> Field | None:
        """Return the field that is meant, or None as long as none is chosen."""
        if self.name.startswith("event:"):
            return fields.BY_NAME["event"]
        if self.name in (ANY_DATA, ANY_EVENT_DATA):
            return fields.find(self.name[:-1] + (self["path"] or "?"), Place.SPLIT, "x")
        return fields.BY_NAME["group"] if self.name == "group" else fields.find(self.name, Place.SPLIT, "x")

    @property
    def type(self) -> str:
        """Return the type of the field, or nothing."""
        return self.field.type if self.field else ""

    @property
    def takes(self) -> str:
        """Return what the value is: a text, numbers, days …"""
        return filter_values.takes(self.type, self.predicate)

    @property
    def is_blank(self) -> bool:
        """Return whether nothing was chosen here yet."""
        return not self.name or (self.type == "group" and all(row.is_blank for row in self.rows))

    @property
    def is_complete(self) -> bool:
        """Return whether a filter can be made of it; a group needs one complete rule."""
        if self.field is None or not self.predicate:
            return False
        if self.type == "group":
            return any(row.is_complete for row in self.rows)
        if self.type == "history":
            return bool(self.event)
        if self.name in (ANY_DATA, ANY_EVENT_DATA) and not self["path"]:
            return False
        return filter_values.is_complete(self.takes, self.values)

    @property
    def event(self) -> str:
        """Return the event that a history is about."""
        return self["path"] if self.name == ANY_EVENT else self.name.partition(":")[2]

    def settle(self) -> None:
        """Choose what goes with the field: a predicate that it has, and values of the predicate's sort."""
        changed = bool(self["was"]) and self["was"] != self.name
        known = (*BY_TYPE.get(self.type, ()), "performed", "not_performed", *GROUPS)
        if self.type and (changed or self.predicate not in known or not self.takes):
            self.predicate = _FIRST[self.type]
        if changed:
            self.values = []
        elif self["as"] and self["as"] != self.takes:
            self.values = filter_values.carried(self["as"], self.takes, self.values)
        if not self.values and self.takes == "days":
            self.values = ["30"]
        if self.type == "group" and not self.rows:
            self.rows = [Row(f"{self.key}-a"), Row(f"{self.key}-b")]

    def filter(self) -> dict[str, Any]:
        """Return the filter that it means; rules inside that are not complete are left out."""
        name = self.name
        if name in (ANY_DATA, ANY_EVENT_DATA):
            name = name[:-1] + self["path"]
        if self.type == "group":
            return {"name": "group", "predicate": self.predicate, "value": parts(self.rows)}
        if self.type == "history":
            where = parts(self.rows)
            value = {"event": self.event, **filter_values.history(self), **({"where": where} if where else {})}
            return {"name": "event", "predicate": self.predicate, "value": value}
        return {"name": name, "predicate": self.predicate, "value": filter_values.value(self)}


def parts(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the filters of the rows that are complete."""
    return [row.filter() for row in rows if row.is_complete]
