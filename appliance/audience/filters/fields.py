"""The fields that filters can name, each with its type and SQL, and the scope in which filters are read and compiled.

To add a field, add an entry to FIELDS.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from appliance.core import addresses, i18n
from appliance.core.errors import Faults
from appliance.core.i18n import gettext, gettext_noop


class FilterPlace(Enum):
    """The place where a filter is used; some fields exist only in some places."""

    SEGMENT = "segment"
    SPLIT = "split"  # A split of a flow: `event.<path>` is the data of the triggering event.
    WHERE = "where"  # The `where` of an event condition: only `event.<path>` and groups exist.


class Scope(NamedTuple):
    """The context in which filters are read and compiled: account, time zone, current time, and the meaning of ids.

    `exists(kind, id)` checks the ids of lists, segments, flows and campaigns when filters are written. It is None when
    stored filters are read, because they may refer to deleted objects. `segment(id)` returns the nodes of a segment, or
    None. In a split of a flow, `document` is the SQL of the triggering event's data, and `start` the SQL of the time
    when the run began. Both are parameters for one run, and columns if many runs are evaluated at once.
    """

    account_id: int
    zone: str
    now: int
    place: FilterPlace = FilterPlace.SEGMENT
    exists: Callable[[str, int], bool] | None = None
    segment: Callable[[int], "list[Any] | None"] = lambda number: None
    document: str = ":event_data"
    start: str = ":flow_start"


class Compiled(NamedTuple):
    """An SQL condition or query over the contact alias `c`, with its named parameters."""

    sql: str
    parameters: dict[str, Any]


class Binder:
    """Parameters with names that begin with `prefix`, so that several compiled parts fit in one statement."""

    def __init__(self, prefix: str, scope: Scope) -> None:
        self.prefix = prefix
        self.scope = scope
        self.values: dict[str, Any] = {}

    def add(self, value: Any) -> str:
        """Store a value and return the placeholder that refers to it."""
        name = f"{self.prefix}{len(self.values)}"
        self.values[name] = value
        return f":{name}"


class Operand(NamedTuple):
    """The SQL that a predicate compares: the value, and other forms of it."""

    value: str
    type: str = ""  # for a JSON value: the SQL of its json_type
    elements: str = ""  # for a JSON value: the table of its elements
    normalized: str = ""  # for an address: the column of its normalized form
    is_language: bool = False  # whether the value is a language tag: `de-AT` equals `de`


class ValueContext:
    """The context in which a value of a filter is read: scope, collected errors, path of the value, and field."""

    def __init__(self, scope: Scope, faults: Faults, path: str, field: "Field") -> None:
        self.scope = scope
        self.faults = faults
        self.path = path
        self.field = field

    def add_error(self, message: str, below: str = "") -> None:
        """Add an error at the path of the value, with `below` appended; return None, which replaces the value."""
        self.faults.add(self.path + below, message)


class Field(NamedTuple):
    """A property of a contact that filters can compare.

    `sql_template` is the SQL of the field, with `{}` in place of the condition on the operand. `json_sql` is the SQL of
    a contact's value as JSON. `cost` is roughly the time of a condition in hundredths of a microsecond per contact;
    cheap conditions are evaluated first. `id_kind` is the kind of object that an id refers to. `normalize(text,
    is_whole)` returns a text as the field stores it; `is_whole` means that it is a complete address. `listed` says
    whether the segment builder offers the field.
    """

    name: str
    type: str
    label: str
    operand: Operand
    json_sql: str
    cost: int = 5
    sql_template: str = "{}"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    id_kind: str = ""
    normalize: Callable[[str, bool], str] | None = None
    listed: bool = True

    def title(self) -> str:
        """Return the label in the language of this request; custom data and events are labelled with their path."""
        return label_path(self.label) if self.type == "json" else gettext(self.label)

    def label_value(self, value: str) -> str:
        """Return a value as users know it: the name of a country or language, or the label of a code."""
        if self.name == "contact_country":
            return i18n.name_country(value)
        if self.name == "contact_language":
            return i18n.name_language(value)
        return gettext(CHOICE_LABELS[value]) if value in self.choices else value

    def wrap(self, condition: str) -> str:
        """Return the SQL of a filter on the field, given a condition on its operand."""
        return self.sql_template.replace("{}", condition, 1)


def label_path(path: str) -> str:
    """Return the path of custom data as a label: `Favourite colour` for `favourite_colour`."""
    words = path.replace("_", " ")
    return words if words != words.lower() else words[:1].upper() + words[1:]


def _normalize_email(text: str, is_whole: bool) -> str:
    if not is_whole:
        return text
    try:
        return addresses.parse_email(text).key
    except ValueError:
        # An invalid address matches no contact, because every stored address is valid.
        return addresses.lowercase(text)


def _normalize_phone(text: str, is_whole: bool) -> str:
    return re.sub(r"[ .\-()]", "", text)


_STATUS = (
    "coalesce((SELECT CASE WHEN h.suppression IS NOT NULL THEN 'suppressed' WHEN h.verified_at IS NOT NULL "
    "THEN 'verified' ELSE 'unverified' END FROM channel h WHERE h.contact_id = c.id "
    "ORDER BY h.kind = 'phone', h.id LIMIT 1), 'unverified')"
)
_ENRICHED = "(json_type(c.data, '$.enrichment') = 'object' AND json_extract(c.data, '$.enrichment') <> '{}') IS TRUE"
_SUPPRESSED = "EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.suppression IS NOT NULL)"
_OPTED_OUT_AT = "(SELECT max(h.opt_out_at) FROM channel h WHERE h.contact_id = c.id AND h.subscribed = 0)"
REASONS = ("erased", "complaint", "hard_bounce", "stop_keyword", "manual", "soft_bounce")
# The labels of values that are codes.
CHOICE_LABELS = {
    "verified": gettext_noop("Confirmed"), "unverified": gettext_noop("Not confirmed"),
    "suppressed": gettext_noop("Suppressed"), "enriched": gettext_noop("Enriched"),
    "not_enriched": gettext_noop("Not enriched"), "hard_bounce": gettext_noop("Hard bounce"),
    "soft_bounce": gettext_noop("Repeated soft bounces"), "complaint": gettext_noop("Spam complaint"),
    "manual": gettext_noop("Added manually"), "erased": gettext_noop("Deleted (GDPR)"),
    "stop_keyword": gettext_noop("Replied STOP"),
}  # fmt: skip


def _column(name: str, type_: str, label: str, column: str, *aliases: str) -> Field:
    cost = 5 if type_ in ("text", "code") else 2
    return Field(name, type_, label, Operand(f"c.{column}"), f"json_quote(c.{column})", cost, aliases=aliases)


def _address(name: str, label: str, kind: str, *aliases: str) -> Field:
    source = f"FROM channel h WHERE h.contact_id = c.id AND h.kind = '{kind}'"
    return Field(
        name, "text", label, Operand("h.value", normalized="h.key"), f"(SELECT json_group_array(h.value) {source})", 30,
        f"EXISTS (SELECT 1 {source} AND {{}})", aliases,
        normalize=_normalize_email if kind == "email" else _normalize_phone,
    )  # fmt: skip


def _boolean(name: str, label: str, sql: str, cost: int, *aliases: str) -> Field:
    return Field(name, "boolean", label, Operand(sql), f"CASE WHEN {sql} THEN 'true' ELSE 'false' END", cost,
                 aliases=aliases)  # fmt: skip


def _subscribed(kind: str) -> str:
    return f"EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.kind = '{kind}' AND h.subscribed = 1)"


def _link(name: str, label: str, of: str, table: str, column: str, condition: str = "1", *aliases: str) -> Field:
    source = f"FROM {table} l WHERE l.contact_id = c.id AND {condition}"
    return Field(
        name, "id", label, Operand(f"l.{column}"), f"(SELECT json_group_array(DISTINCT l.{column}) {source} AND "
        f"l.{column} IS NOT NULL)", 22, f"EXISTS (SELECT 1 {source} AND {{}})", aliases, id_kind=of,
    )  # fmt: skip


FIELDS: tuple[Field, ...] = (
    _column("contact_first_name", "text", gettext_noop("First name"), "first_name", "first_name"),
    _column("contact_last_name", "text", gettext_noop("Last name"), "last_name", "last_name"),
    _address("contact_email", gettext_noop("Email address"), "email", "email"),
    _address("contact_phone_number", gettext_noop("Phone number"), "phone", "phone", "phone_number"),
    _column("contact_source", "text", gettext_noop("Source"), "source", "source"),
    _column("contact_country", "code", gettext_noop("Country"), "country_code", "country", "country_code"),
    Field(
        "contact_language",
        "code",
        gettext_noop("Language"),
        Operand("c.language", is_language=True),
        "json_quote(c.language)",
        aliases=("language",),
    ),
    Field(
        "contact_verification_status",
        "code",
        gettext_noop("Address status"),
        Operand(_STATUS),
        f"json_quote({_STATUS})",
        40,
        aliases=("verification_status",),
        choices=("verified", "suppressed", "unverified"),
    ),
    Field(
        "contact_suppression_reason",
        "code",
        gettext_noop("Reason for suppression"),
        Operand("h.suppression"),
        "(SELECT json_group_array(h.suppression) FROM channel h WHERE h.contact_id = c.id "
        "AND h.suppression IS NOT NULL)",
        30,
        "EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND {})",
        ("suppression_reason",),
        REASONS,
    ),
    Field(
        "contact_tag",
        "tags",
        gettext_noop("Tags"),
        Operand("t.value"),
        "c.data -> '$.tags'",
        20,
        "(json_type(c.data, '$.tags') = 'array' AND EXISTS (SELECT 1 FROM json_each(c.data, '$.tags') t "
        "WHERE t.type = 'text' AND {}))",
        ("tag", "tags"),
    ),
    _boolean(
        "contact_subscribed_email", gettext_noop("Is subscribed to email"), _subscribed("email"), 30, "subscribed_email"
    ),
    _boolean(
        "contact_subscribed_phone", gettext_noop("Is subscribed to SMS"), _subscribed("phone"), 30, "subscribed_phone"
    ),
    _boolean("contact_verified", gettext_noop("Address is confirmed"), f"({_STATUS} = 'verified')", 40, "verified"),
    _boolean("contact_enriched", gettext_noop("Has data from an enrichment service"), _ENRICHED, 35, "enriched"),
    _boolean("contact_suppressed", gettext_noop("Is on the suppression list"), _SUPPRESSED, 30, "suppressed"),
    _column("contact_created_at", "time", gettext_noop("Date added"), "created_at", "created_at"),
    _column("contact_updated_at", "time", gettext_noop("Date last changed"), "updated_at", "updated_at"),
    _column(
        "contact_last_interacted_at",
        "time",
        gettext_noop("Date last active"),
        "last_interacted_at",
        "last_interacted_at",
    ),
    Field(
        "contact_unsubscribed_at",
        "time",
        gettext_noop("Date unsubscribed"),
        Operand(_OPTED_OUT_AT),
        _OPTED_OUT_AT,
        30,
        aliases=("unsubscribed_at",),
    ),
    _column("email_last_sent_at", "time", gettext_noop("Date of the last email sent"), "email_last_sent_at"),
    _column("email_last_opened_at", "time", gettext_noop("Date of the last email open"), "email_last_opened_at"),
    _column("email_last_clicked_at", "time", gettext_noop("Date of the last email click"), "email_last_clicked_at"),
    _link("contact_list", gettext_noop("List"), "list", "membership", "contact_list_id", "1", "list_id", "list_ids"),
    Field(
        "contact_segment",
        "id",
        gettext_noop("Segment"),
        Operand(""),
        "NULL",
        50,
        aliases=("segment_id",),
        id_kind="segment",
    ),
    _link("contact_flow", gettext_noop("Active flow"), "flow", "run", "flow_id", "l.status = 'live'", "flow_id"),
    _link(
        "campaign_sent",
        gettext_noop("Received a specific campaign"),
        "campaign",
        "message",
        "campaign_id",
        "l.sent_at IS NOT NULL AND l.status != 'bounced' AND l.test = 0",  # a bounced message was not received
    ),
    _link(
        "campaign_opened",
        gettext_noop("Opened a specific campaign"),
        "campaign",
        "message",
        "campaign_id",
        "l.opened_at IS NOT NULL AND l.test = 0",
    ),
    _link(
        "campaign_clicked",
        gettext_noop("Clicked in a specific campaign"),
        "campaign",
        "message",
        "campaign_id",
        "l.clicked_at IS NOT NULL AND l.test = 0",
    ),
    *(
        _column(name, "number", label, name)
        for name, label in (
            ("email_sent_count", gettext_noop("Number of emails sent")),
            ("email_open_count", gettext_noop("Number of emails opened")),
            ("email_click_count", gettext_noop("Number of emails clicked")),
            ("email_soft_bounce_count", gettext_noop("Number of soft bounces")),
            ("sms_sent_count", gettext_noop("Number of SMS sent")),
        )
    ),
    Field(
        "enrichment_status",
        "code",
        gettext_noop("Enrichment status"),
        Operand(f"CASE WHEN {_ENRICHED} THEN 'enriched' ELSE 'not_enriched' END"),
        f"CASE WHEN {_ENRICHED} THEN '\"enriched\"' ELSE '\"not_enriched\"' END",
        35,
        choices=("enriched", "not_enriched"),
        listed=False,
    ),
    Field("event", "history", gettext_noop("Events"), Operand(""), "NULL", 30),
    Field("group", "group", gettext_noop("Group of conditions"), Operand(""), "NULL", 30),
)

FIELDS_BY_NAME: dict[str, Field] = {name: field for field in FIELDS for name in (field.name, *field.aliases)}

# A key in a path: any text that can be quoted in a JSON path.
_KEY = re.compile('^[^\x00-\x1f\x7f"\\\\\ud800-\udfff]{1,100}$')
_MAX_DEPTH = 8
_DATA = ("contact_data.", "data.")
_EVENT = "event."


def find_field(name: str, place: FilterPlace, triggering: str = "") -> Field | None:
    """Return the field that a filter in `place` means by `name`, or None if there is none.

    `triggering` is the SQL of the triggering event's data, for a split of a flow.
    """
    if name.startswith(_EVENT):
        document = {FilterPlace.WHERE: "e.data", FilterPlace.SPLIT: triggering}.get(place)
        return _json_field(name, name.removeprefix(_EVENT), document) if document else None
    if place is FilterPlace.WHERE:
        return FIELDS_BY_NAME["group"] if name == "group" else None
    for prefix in _DATA:
        if name.startswith(prefix):
            return _json_field(name, name.removeprefix(prefix), "c.data")
    return FIELDS_BY_NAME.get(name)


def is_event_path(name: Any) -> bool:
    """Return whether the name of a filter refers to the data of an event: it begins with `event.`."""
    return isinstance(name, str) and name.startswith(_EVENT)


def _json_field(name: str, dotted: str, document: str) -> Field | None:
    path = json_path(dotted)
    if path is None:
        return None
    operand = Operand(
        f"json_extract({document}, {path})", f"json_type({document}, {path})", f"json_each({document}, {path})"
    )  # fmt: skip
    return Field(name, "json", dotted, operand, f"{document} -> {path}", 25)


def json_path(dotted: str) -> str | None:
    """Return the JSON path of keys separated by dots, as an SQL literal, or None if it is invalid.

    The path is a literal and not a parameter, because SQLite uses an index only for the same expression.
    """
    keys = dotted.split(".")
    if len(keys) > _MAX_DEPTH or not all(_KEY.match(key) for key in keys):
        return None
    path = "".join(f'."{key}"' for key in keys).replace("'", "''")
    return f"'${path}'"


# SQLite compares ASCII texts with NOCASE and LIKE at full speed and from an index. Other texts need the function
# `folded`, which ignores case as Python does (`appliance/storage/database.py`).


def like_pattern(shape: str, text: str) -> str:
    """Return the LIKE pattern of a shape such as `{}%`, with an escaped text in place of `{}`."""
    return shape.format(re.sub(r"([\\%_])", r"\\\1", text))


# LIKE compares a text that may begin anywhere at each position in full: 82 ms for 1,000 letters in a text of 32 KB, and
# `instr` 0.7 ms.
_MAX_LIKE_CHARACTERS = 16


def like_condition(expression: str, shape: str, text: str, binder: Binder) -> str:
    """Return a condition that does what LIKE does, which ignores case; the text must be ASCII."""
    if len(text) > _MAX_LIKE_CHARACTERS and shape == "%{}%":
        return f"instr(lower({expression}), {binder.add(text.lower())}) > 0"
    if len(text) > _MAX_LIKE_CHARACTERS and shape == "%{}":
        return f"substr(lower({expression}), {-len(text)}) = {binder.add(text.lower())}"
    pattern = like_pattern(shape, text)
    escape = " ESCAPE '\\'" if "\\" in pattern else ""
    return f"{expression} LIKE {binder.add(pattern)}{escape}"
