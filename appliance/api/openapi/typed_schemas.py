"""Schemas of values that are not Structs but have their own parsers: filters, designs, flow steps and triggers.

They are built from the registries of the parsers. A field of a Struct refers to one of them by
`validation.schema_name`.
"""

from typing import Any

from appliance.audience.contacts.write import MAX_TAG_CHARACTERS
from appliance.audience.segments import suggestions
from appliance.content.designs.document import MAX_SECTIONS
from appliance.content.designs.kind import STYLES, THEME, Kind, Prop
from appliance.content.designs.sections import KINDS as SECTION_KINDS
from appliance.core.validation import EVENT_NAME
from appliance.flows.date_events import WEEKDAYS
from appliance.flows.document import STEP_KEYS
from appliance.flows.entry_caps import MAX_ENTRIES
from appliance.flows.request_template import MAX_URL_CHARACTERS
from appliance.flows.split_tests import DECIDERS, METRICS
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.go_to import MAX_JUMPS
from appliance.flows.steps.http_request import MAX_SECRET_CHARACTERS, METHODS, MIN_SECRET_CHARACTERS
from appliance.flows.steps.notify import MAX_NOTE_CHARACTERS, VIAS
from appliance.flows.steps.random_split import MAX_NAME_CHARACTERS
from appliance.flows.steps.split_value import MAX_VALUES
from appliance.flows.steps.unsubscribe import CHANNELS as UNSUBSCRIBE_CHANNELS
from appliance.flows.steps.wait import MAX_SECONDS
from appliance.flows.steps.wait_until import MIN_TIMEOUT_SECONDS, ZONES
from appliance.flows.triggers import MAX_OFFSET_DAYS, TIME_OF_DAY

# A property of a design accepts any plain value, such as both "24px" and 24.
_PLAIN = ["string", "number", "boolean", "null"]


def reference(name: str) -> dict[str, str]:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a schema that allows null too, with a description."""
    return {"anyOf": [schema, {"type": "null"}], "description": text}


def build_typed_schemas() -> dict[str, Any]:
    """Return the schemas of values that have their own parsers, by name."""
    return {
        "Filter": _filter_schema(),
        "Design": _design_schema(),
        **_section_schemas(),
        "DesignTheme": _theme_schema(),
        "FlowStepWrite": build_step_schema(),
        "FlowTriggerWrite": _trigger_schema(),
        "FlowTriggerData": _trigger_data_schema(),
        "CampaignTriggerData": _campaign_trigger_data_schema(),
    }


def _filter_schema() -> dict[str, Any]:
    filter_spec = suggestions.describe_builder()
    predicates = sorted({entry["predicate"] for tests in filter_spec["types"].values() for entry in tests})
    names = ", ".join(entry["name"] for entry in filter_spec["fields"])
    return {
        "type": "object",
        "description": "A condition on contacts. All filters in a list must match; `group` combines them in other "
        "ways. Texts are compared case-insensitively; a negative predicate also matches contacts without a value. "
        "`GET /segments/spec` lists the predicates of each field.",
        "properties": {
            "name": {"type": "string", "description": f"name of the field: {names}, or a field of Contact"},
            "predicate": {"enum": predicates, "description": "predicate"},
            "value": {
                "type": ["string", "number", "boolean", "array", "object", "null"],
                "description": "value to compare with, of the type that the field and the predicate require",
            },
        },
        "required": ["name", "predicate"],
        "additionalProperties": False,
    }


def _property_schema(prop: Prop) -> dict[str, Any]:
    """Return the schema of a property, null if it is not set. Properties with an unknown name are allowed."""
    text = ". ".join(filter(None, (prop.label, prop.help)))
    schema: dict[str, Any] = {"type": _PLAIN}
    if prop.kind == "items":
        entry = {"type": ["object", "null"], "properties": _property_schemas(prop.fields)}
        schema = {"type": ["array", "null"], "items": entry, "maxItems": int(prop.maximum)}
    elif prop.kind == "group":
        schema = {"type": ["object", "string", "null"], "properties": _property_schemas(prop.fields)}
    elif prop.kind in ("sections", "filters"):
        name = "DesignSection" if prop.kind == "sections" else "Filter"
        schema = {"type": ["array", "null"], "items": reference(name)}
    return schema | {"description": text[:1].lower() + text[1:]}


def _property_schemas(props: tuple[Prop, ...]) -> dict[str, Any]:
    return {prop.name: _property_schema(prop) for prop in props}


def _design_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "An email design. It is stored and returned as sent.",
        "properties": {
            "sections": {
                "type": "array",
                "maxItems": MAX_SECTIONS,
                "items": reference("DesignSection"),
                "description": "sections from top to bottom",
            },
            "theme": nullable(reference("DesignTheme"), "colours, fonts and logo; default: those of the brand"),
        },
    }


def _section_schemas() -> dict[str, Any]:
    """Return `DesignSection` and what it consists of: the schema of each section type, and one of other sections."""
    names = {
        kind.name: f"{''.join(word.capitalize() for word in kind.name.split('_'))}Section" for kind in SECTION_KINDS
    }
    section = {
        "description": "A section of a design.",
        "anyOf": [reference("KnownSection"), reference("OtherSection")],
    }
    known = {
        "description": "A section of a known type.",
        "oneOf": [reference(name) for name in names.values()],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind: f"#/components/schemas/{name}" for kind, name in names.items()},
        },
    }
    other = {
        "type": "object",
        "description": "A section without a type, which is derived from the keys of `props`, or of an unknown type, "
        "which is stored and blocks sending.",
        "properties": {
            "type": {"type": ["string", "null"], "not": {"enum": [*names]}, "description": "section type"},
            "props": {"type": ["object", "null"], "additionalProperties": True, "description": "properties"},
            **_BOX_PROPERTIES,
        },
    }
    kinds = {names[kind.name]: _section_schema(kind) for kind in SECTION_KINDS}
    return {"DesignSection": section, "KnownSection": known, "OtherSection": other, **kinds}


def _section_schema(kind: Kind) -> dict[str, Any]:
    props = {"type": ["object", "null"], "properties": _property_schemas(kind.all_props())}
    return {
        "type": "object",
        "description": f"A section of the type `{kind.name}`.",
        "properties": {
            "type": {"const": kind.name, "description": "section type"},
            "props": props | {"description": "properties; `GET /templates/spec` lists their defaults and limits"},
            **_BOX_PROPERTIES,
        },
        "required": ["type"],
    }


# The properties of a section of any type, beside `type` and `props`.
_BOX_PROPERTIES: dict[str, Any] = {
    "id": {"type": ["string", "integer", "null"], "description": "your identifier of the section"},
    "styles": {
        "type": ["object", "null"], "properties": _property_schemas(STYLES),
        "description": "styles of the surrounding box; `props` take precedence",
    },
}  # fmt: skip


def _theme_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "Default look of the sections of a design.",
        "properties": {prop.name: _property_schema(prop) for prop in THEME},
    }


def _trigger_schema() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 1}
    return {
        "type": "object",
        "description": "The trigger of a flow.",
        "properties": {
            "event": nullable(
                {"type": "string", "pattern": f"^$|{EVENT_NAME}"},
                "event that starts the flow; with `manual`, null or empty, the flow cannot be activated",
            ),
            "segment_id": nullable(
                number,
                "id of a segment to which the contact must belong; without an event, entering it starts the flow",
            ),
            "contact_list_id": nullable(number, "id of the list that the contact joins or leaves"),
            "data": nullable(reference("FlowTriggerData"), "conditions of the trigger"),
        },
        "additionalProperties": False,
    }


# The keys of a flow trigger's `data`; each may be null.
_TRIGGER_DATA: dict[str, tuple[dict[str, Any], str]] = {
    "frequency": (
        {
            "anyOf": [
                {"enum": ["once", "every_time"]},
                {
                    "type": "object",
                    "properties": {"min_gap_seconds": {"type": "integer", "description": "seconds between two runs"}},
                    "required": ["min_gap_seconds"],
                },
            ]
        },
        "how often a contact may start the flow",
    ),
    "where": ({"type": "array", "items": reference("Filter")}, "filters that event and contact must match"),
    "keywords": ({"type": "array", "items": {"type": "string"}}, "keywords of an incoming SMS that start the flow"),
    "tag": ({"type": "string"}, "tag that starts the flow when a contact gets it"),
    "path": ({"type": "string"}, "`date_reached`: custom field with the date, such as `data.renewal`"),
    "yearly": ({"type": "boolean"}, "`date_reached`: whether the date returns each year"),
    "offset_days": (
        {"type": "integer", "minimum": -MAX_OFFSET_DAYS, "maximum": MAX_OFFSET_DAYS},
        "`date_reached`: days after the date; negative: before it",
    ),
    "at": ({"type": "string", "pattern": TIME_OF_DAY.pattern}, "`date_reached`: hour of the day, such as `09:00`"),
    "max_per_hour": (
        {"type": "integer", "minimum": 1, "maximum": MAX_ENTRIES},
        "how many contacts may begin in an hour",
    ),
    "holdout": ({"type": "number"}, "share of contacts (0.01 to 0.5) that does not enter and is compared"),
    "holdout_event": ({"type": "string"}, "event by which that group is compared; default: the goal"),
    "respect_control_group": (
        {"type": "boolean"},
        "whether contacts in the account's control group do not enter",
    ),
}


def _trigger_data_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "The conditions of a flow's trigger.",
        "properties": {name: nullable(*schema) for name, schema in _TRIGGER_DATA.items()},
        "additionalProperties": True,
    }


def _campaign_trigger_data_schema() -> dict[str, Any]:
    ids = {"type": "array", "items": {"type": "integer", "minimum": 1}}
    properties: dict[str, tuple[dict[str, Any], str]] = {
        "contact_list_ids": (ids, "ids of lists to send to, beside `contact_list_id`"),
        "exclude_contact_list_ids": (ids, "ids of lists whose members get nothing"),
        "exclude_segment_ids": (ids, "ids of segments whose members get nothing"),
        "audience_type": (
            {"type": ["string", "null"], "enum": ["all_contacts", None]},
            "`all_contacts`, with `confirm_send_to_all`, for all contacts",
        ),
        "confirm_send_to_all": ({"type": "boolean"}, "true to send to all contacts"),
    }
    return {
        "type": "object",
        "description": "Further parts of a campaign's audience.",
        "properties": {name: schema | {"description": text} for name, (schema, text) in properties.items()},
        "additionalProperties": True,
    }


def _branch_schema() -> dict[str, Any]:
    properties: dict[str, tuple[dict[str, Any], str]] = {
        "key": ({"type": "string"}, "key of an existing branch; absent for a new one"),
        "values": (
            {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "maxItems": MAX_VALUES},
            "values of `field`, regardless of case; a number also matches as text",
        ),
        "name": ({"type": "string", "maxLength": MAX_NAME_CHARACTERS}, "name of a branch of `random_split`"),
        "share": (
            {"type": "integer", "minimum": 0, "maximum": 100},
            "share of a branch of `random_split`, in percent",
        ),
        "steps": ({"type": "array", "items": reference("FlowStepWrite")}, "steps of the branch"),
    }
    return {
        "type": "object",
        "properties": {name: nullable(*schema) for name, schema in properties.items()},
        "additionalProperties": False,
    }


# The schema and description of each key of a step.
_STEP_KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "id": ({"type": "integer"}, "id of an existing step; absent for a new one"),
    "type": ({"enum": [*BY_TYPE]}, "type of the step; derived from its keys if absent"),
    "subject": ({"type": "string", "maxLength": 998}, "subject line of an email, with merge tags"),
    "body": ({"type": "string"}, "HTML or text of an email; without a subject, the text of an SMS"),
    "preheader": ({"type": "string", "maxLength": 255}, "preview text that mailboxes show after the subject line"),
    "from_name": ({"type": "string", "maxLength": 255}, "sender name; default: that of the account"),
    "from_email": ({"type": "string"}, "sender address; default: that of the account"),
    "reply_to": ({"type": "string"}, "address for replies; default: the sender"),
    "design": (reference("Design"), "design of an email"),
    "utm": (
        reference("UtmWrite"),
        "UTM parameters of the links of a message; null or absent for those of the account, all values null for none",
    ),
    "transactional": ({"type": "boolean"}, "whether the message is sent without consent, footer and tracking"),
    "template_id": ({"type": "integer"}, "id of the template with the content; read-only"),
    "duration": ({"type": "integer", "minimum": 0, "maximum": MAX_SECONDS}, "seconds to wait"),
    "filters": (
        {"type": "array", "items": reference("Filter")},
        "filters that choose the branch, `yes` if all match, or that the event to wait for must match",
    ),
    "yes": ({"type": "array", "items": reference("FlowStepWrite")}, "steps for contacts that match"),
    "no": ({"type": "array", "items": reference("FlowStepWrite")}, "steps for contacts that do not match"),
    "field": (
        {"type": "string"},
        "field whose value chooses the branch, as filters name it, such as `data.plan`, `event.size` (of the event "
        "that started the run) or `country`",
    ),
    "metric": (
        {"enum": [*METRICS]},
        "what decides which branch of `random_split` is the best: contacts who clicked, or who have the event "
        "`event_name`; absent: no test",
    ),
    "by_amount": ({"type": "boolean"}, "whether the amounts of the events are compared, not who has one"),
    "uneven": (
        {"type": "boolean"},
        "whether better branches get more of the later contacts (Thompson sampling), from the second day on; the "
        "shares are those of the beginning",
    ),
    "decided_by": (
        {"enum": [*DECIDERS]},
        "who chooses the winner of `random_split`: the service as soon as it is clear (default), or a person",
    ),
    "branches": (
        {"type": "array", "items": _branch_schema()},
        "branches of `split_value`, of which a contact takes the first that has its value, or of `random_split`, "
        "whose shares add up to 100",
    ),
    "else": (
        {"type": "array", "items": reference("FlowStepWrite")},
        "steps for contacts that take none of the `branches`",
    ),
    "event_name": ({"type": "string"}, "name of an event to record or wait for, `^[a-z][a-z0-9_]{0,63}$`"),
    "event_data": ({"type": "object"}, "data of that event"),
    "forward_event_data": (
        {"type": "boolean"},
        "whether that event includes the data of the event that started the run",
    ),
    "contact_list_id": ({"type": "integer"}, "id of the list to join or leave, depending on `type`"),
    "channel": ({"enum": [*UNSUBSCRIBE_CHANNELS]}, "channel to unsubscribe from; default: `email`"),
    "until": (
        {"enum": ["time", "date", "event"]},
        "what to wait for: an hour of the day (`at`, `weekdays`), a date of the contact (`path`, `offset_days`, `at`), "
        "or an event of the contact (`event_name`, `filters`, `timeout`); a date and an event have the branches `yes` "
        "(it came) and `no`",
    ),
    "at": ({"type": "string", "pattern": TIME_OF_DAY.pattern}, "hour of the day, such as `09:00`, the default"),
    "weekdays": ({"type": "array", "items": {"enum": [*WEEKDAYS]}}, "only on these days; absent for all"),
    "time_zone": (
        {"enum": [*ZONES]},
        "whose time zone; default: `contact`, which is `data.time_zone`, else the zone of the phone number, of the "
        "country, or of the account, the first that is known",
    ),
    "path": ({"type": "string"}, "custom field with the date, such as `data.renewal`, or `created_at`"),
    "offset_days": (
        {"type": "integer", "minimum": -MAX_OFFSET_DAYS, "maximum": MAX_OFFSET_DAYS},
        "days after the date; negative: before it",
    ),
    "timeout": (
        {"type": "integer", "minimum": MIN_TIMEOUT_SECONDS, "maximum": MAX_SECONDS},
        "seconds to wait for the event, or to try the request, at most; a request: up to 259,200, default 3,600",
    ),
    "via": ({"enum": [*VIAS]}, "how `notify` tells it: `email`, the default, or `slack`"),
    "user_id": ({"type": "integer"}, "id of the user of the account whom `notify` emails"),
    "slack_url": (
        {"type": "string", "maxLength": MAX_URL_CHARACTERS},
        "incoming webhook of Slack, or of a program that takes the same requests, to which `notify` posts; stored "
        "encrypted and never returned. Absent, the stored one is kept",
    ),
    "method": ({"enum": [*METHODS]}, "method of `http_request`; default: `POST`"),
    "url": (
        {"type": "string", "maxLength": MAX_URL_CHARACTERS},
        "URL of `http_request`; it may have merge tags after its host",
    ),
    "headers": ({"type": "object"}, "headers of `http_request`: values by name"),
    "secret_headers": (
        {"type": "object"},
        "headers of `http_request` that are stored encrypted. Responses have null as their values; null keeps the "
        "stored value, as long as scheme, host and port of `url` stay the same",
    ),
    "payload": (
        {"type": ["object", "array"]},
        "JSON body of `http_request`; its texts may have merge tags. A text that is only one tag keeps the type of "
        "its value",
    ),
    "signed": (
        {"type": "boolean"},
        "whether `http_request` is signed as webhooks are (Standard Webhooks); true without `signing_secret` keeps "
        "the stored secret",
    ),
    "signing_secret": (
        {"type": "string", "minLength": MIN_SECRET_CHARACTERS, "maxLength": MAX_SECRET_CHARACTERS},
        "secret that signs `http_request`; stored encrypted and never returned",
    ),
    "save_to_contact": (
        {"type": "object"},
        "values of the JSON response of `http_request` to store in the contact's `data`: paths, such as "
        "`result.items.0.price`, by key",
    ),
    "save_to_run": (
        {"type": "object"},
        "values of the JSON response of `http_request` to store with the event that started the run: paths by key",
    ),
    "note": ({"type": "string", "maxLength": MAX_NOTE_CHARACTERS}, "note in the message of `notify`"),
    "step_id": ({"type": "integer"}, "`id`, as sent, of the step that `go_to` leads to"),
    "max_jumps": (
        {"type": "integer", "minimum": 1, "maximum": MAX_JUMPS},
        "how often a run jumps there at most; default: 1. Then it continues",
    ),
    "tag": (
        {"type": "string", "maxLength": MAX_TAG_CHARACTERS},
        "tag to add or remove, depending on `type`; all other tags of the contact stay",
    ),
    "data_merge": ({"type": "object"}, "JSON merge patch (RFC 7396) for the contact's `data`"),
}


def build_step_schema() -> dict[str, Any]:
    """Return the schema of a step in a request: the keys of all kinds."""
    return {
        "type": "object",
        "description": "A step of a flow. Its type is given by `type` or derived from its keys; `GET /flows/spec` "
        "lists the keys of each type. Null, empty and zero count as absent.",
        "properties": {name: nullable(*_STEP_KEYS[name]) for name in _STEP_KEYS if name in STEP_KEYS},
        "additionalProperties": False,
    }
