"""The fields that filters know: name, type, SQL. A new one is one entry in FIELDS."""

import re
from collections.abc import Callable
from typing import NamedTuple

from appliance.audience.filters.scope import Binder, Operand, Place
from appliance.core import addresses
from appliance.storage.open import fold as fold


class Field(NamedTuple):
    """One thing that can be asked about a person.

    `around` is the SQL in which a predicate's condition on the operand stands at `{}`; `shown` answers the person's
    value as JSON. `cost` orders conditions, the cheap ones first: in hundredths
    of a microsecond a person, about. `of` is what an id field points to.
    """

    name: str
    type: str
    label: str
    operand: Operand
    shown: str
    cost: int = 5
    around: str = "{}"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    of: str = ""
    normal: Callable[[str, bool], str] | None = None
    listed: bool = True

    def wrap(self, condition: str) -> str:
        """Set a condition on the operand into the field's SQL."""
        return self.around.replace("{}", condition, 1)


def _email(text: str, whole: bool) -> str:
    if not whole:
        return text
    try:
        return addresses.email(text).key
    except ValueError:
        return addresses.lower(text)  # equals nobody's, for every stored address can be read


def _phone(text: str, whole: bool) -> str:
    return re.sub(r"[ .\-()]", "", text)


_STATUS = (
    "coalesce((SELECT CASE WHEN h.suppression IS NOT NULL THEN 'suppressed' WHEN h.verified_at IS NOT NULL "
    "THEN 'verified' ELSE 'unverified' END FROM channel h WHERE h.contact_id = c.id "
    "ORDER BY h.kind = 'phone', h.id LIMIT 1), 'unverified')"
)
_ENRICHED = "(json_type(c.data, '$.enrichment') = 'object' AND json_extract(c.data, '$.enrichment') <> '{}') IS TRUE"
_SUPPRESSED = "EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.suppression IS NOT NULL)"
_LEFT = "(SELECT max(h.opt_out_at) FROM channel h WHERE h.contact_id = c.id AND h.subscribed = 0)"
REASONS = ("erased", "complaint", "hard_bounce", "stop_keyword", "manual", "soft_bounce")


def _column(name: str, type_: str, label: str, column: str, *aliases: str) -> Field:
    cost = 5 if type_ in ("text", "code") else 2
    return Field(name, type_, label, Operand(f"c.{column}"), f"json_quote(c.{column})", cost, aliases=aliases)


def _address(name: str, label: str, kind: str, *aliases: str) -> Field:
    here = f"FROM channel h WHERE h.contact_id = c.id AND h.kind = '{kind}'"
    return Field(
        name, "text", label, Operand("h.value", whole="h.key"), f"(SELECT json_group_array(h.value) {here})", 30,
        f"EXISTS (SELECT 1 {here} AND {{}})", aliases, normal=_email if kind == "email" else _phone,
    )  # fmt: skip


def _boolean(name: str, label: str, sql: str, cost: int, *aliases: str) -> Field:
    return Field(name, "boolean", label, Operand(sql), f"CASE WHEN {sql} THEN 'true' ELSE 'false' END", cost,
                 aliases=aliases)  # fmt: skip


def _subscribed(kind: str) -> str:
    return f"EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.kind = '{kind}' AND h.subscribed = 1)"


def _linked(name: str, label: str, of: str, table: str, column: str, condition: str = "1", *aliases: str) -> Field:
    here = f"FROM {table} l WHERE l.contact_id = c.id AND {condition}"
    return Field(
        name, "id", label, Operand(f"l.{column}"), f"(SELECT json_group_array(DISTINCT l.{column}) {here} AND "
        f"l.{column} IS NOT NULL)", 22, f"EXISTS (SELECT 1 {here} AND {{}})", aliases, of=of,
    )  # fmt: skip


FIELDS: tuple[Field, ...] = (
    _column("contact_first_name", "text", "first name", "first_name", "first_name"),
    _column("contact_last_name", "text", "last name", "last_name", "last_name"),
    _address("contact_email", "email", "email", "email"),
    _address("contact_phone_number", "phone number", "phone", "phone", "phone_number"),
    _column("contact_source", "text", "source", "source", "source"),
    _column("contact_country", "code", "country", "country_code", "country", "country_code"),
    Field("contact_verification_status", "code", "verification", Operand(_STATUS), f"json_quote({_STATUS})", 40,
          aliases=("verification_status",), choices=("verified", "suppressed", "unverified")),
    Field("contact_suppression_reason", "code", "suppression", Operand("h.suppression"),
          "(SELECT json_group_array(h.suppression) FROM channel h WHERE h.contact_id = c.id "
          "AND h.suppression IS NOT NULL)", 30,
          "EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND {})", ("suppression_reason",), REASONS),
    Field("contact_tag", "tags", "tags", Operand("t.value"), "c.data -> '$.tags'", 20,
          "(json_type(c.data, '$.tags') = 'array' AND EXISTS (SELECT 1 FROM json_each(c.data, '$.tags') t "
          "WHERE t.type = 'text' AND {}))", ("tag", "tags")),
    _boolean("contact_subscribed_email", "subscribed by email", _subscribed("email"), 30, "subscribed_email"),
    _boolean("contact_subscribed_phone", "subscribed by phone", _subscribed("phone"), 30, "subscribed_phone"),
    _boolean("contact_verified", "verified", f"({_STATUS} = 'verified')", 40, "verified"),
    _boolean("contact_enriched", "enriched", _ENRICHED, 35, "enriched"),
    _boolean("contact_suppressed", "suppressed", _SUPPRESSED, 30, "suppressed"),
    _column("contact_created_at", "time", "date added", "created_at", "created_at"),
    _column("contact_updated_at", "time", "date changed", "updated_at", "updated_at"),
    _column("contact_last_interacted_at", "time", "last interaction", "last_interacted_at", "last_interacted_at"),
    Field("contact_unsubscribed_at", "time", "date unsubscribed", Operand(_LEFT), _LEFT, 30,
          aliases=("unsubscribed_at",)),
    _column("email_last_sent_at", "time", "last email sent", "email_last_sent_at"),
    _column("email_last_opened_at", "time", "last email opened", "email_last_opened_at"),
    _column("email_last_clicked_at", "time", "last email clicked", "email_last_clicked_at"),
    _linked("contact_list", "list", "list", "membership", "contact_list_id", "1", "list_id", "list_ids"),
    Field("contact_segment", "id", "segment", Operand(""), "NULL", 50, aliases=("segment_id",), of="segment"),
    _linked("contact_flow", "flow", "flow", "run", "flow_id", "l.status = 'live'", "flow_id"),
    _linked("campaign_sent", "campaign received", "campaign", "message", "campaign_id",
            "l.sent_at IS NOT NULL AND l.test = 0"),
    _linked("campaign_opened", "campaign opened", "campaign", "message", "campaign_id",
            "l.opened_at IS NOT NULL AND l.test = 0"),
    _linked("campaign_clicked", "campaign clicked", "campaign", "message", "campaign_id",
            "l.clicked_at IS NOT NULL AND l.test = 0"),
    *(
        _column(name, "number", label, name)
        for name, label in (
            ("email_sent_count", "emails sent"), ("email_open_count", "emails opened"),
            ("email_click_count", "emails clicked"), ("email_soft_bounce_count", "soft bounces"),
            ("sms_sent_count", "SMS sent"),
        )
    ),
    Field("enrichment_status", "code", "enrichment",
          Operand(f"CASE WHEN {_ENRICHED} THEN 'enriched' ELSE 'not_enriched' END"),
          f"CASE WHEN {_ENRICHED} THEN '\"enriched\"' ELSE '\"not_enriched\"' END", 35,
          choices=("enriched", "not_enriched"), listed=False),
    Field("event", "history", "events", Operand(""), "NULL", 30),
    Field("group", "group", "a group of conditions", Operand(""), "NULL", 30),
)  # fmt: skip

BY_NAME: dict[str, Field] = {name: field for field in FIELDS for name in (field.name, *field.aliases)}

# The keys of a path: anything that can stand between quotes in a JSON path
_KEY = re.compile('^[^\x00-\x1f\x7f"\\\\\ud800-\udfff]{1,100}$')
_MAX_DEPTH = 8
_DATA = ("contact_data.", "data.")
_EVENT = "event."


def find(name: str, place: Place, triggering: str = "") -> Field | None:
    """Return the field of a name where it may stand, or None; `triggering` is the SQL of that event's data."""
    if name.startswith(_EVENT):
        document = {Place.WHERE: "e.data", Place.SPLIT: triggering}.get(place)
        return _inside(name, name.removeprefix(_EVENT), document) if document else None
    if place is Place.WHERE:
        return BY_NAME["group"] if name == "group" else None
    for prefix in _DATA:
        if name.startswith(prefix):
            return _inside(name, name.removeprefix(prefix), "c.data")
    return BY_NAME.get(name)


def _inside(name: str, dotted: str, document: str) -> Field | None:
    path = json_path(dotted)
    if path is None:
        return None
    operand = Operand(
        f"json_extract({document}, {path})", f"json_type({document}, {path})", f"json_each({document}, {path})"
    )  # fmt: skip
    return Field(name, "json", dotted, operand, f"{document} -> {path}", 25)


def json_path(dotted: str) -> str | None:
    """Return the SQL literal of the JSON path to dotted keys, or None if there can be no such path.

    It stands in the statement as it is, because an index serves only the expression it was made of.
    """
    keys = dotted.split(".")
    if len(keys) > _MAX_DEPTH or not all(_KEY.match(key) for key in keys):
        return None
    path = "".join(f'."{key}"' for key in keys).replace("'", "''")
    return f"'${path}'"


# Comparing text without case, in SQL and in Python alike (`appliance/storage/open.py`).
#
# A value of ASCII letters can be compared by SQLite's own NOCASE and LIKE, at full speed and from an index; only
# other values need its function `folded`.


def pattern(shape: str, text: str) -> str:
    """Return the LIKE pattern that has a text at the `{}` of a shape, every letter standing for itself."""
    return shape.format(re.sub(r"([\\%_])", r"\\\1", text))


def like(expression: str, shape: str, text: str, binder: Binder) -> str:
    """Compare with a pattern without case; only for a text of ASCII letters."""
    wanted = pattern(shape, text)
    escape = " ESCAPE '\\'" if "\\" in wanted else ""
    return f"{expression} LIKE {binder.add(wanted)}{escape}"
