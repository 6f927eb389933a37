"""Schemas of values that are not Structs but have their own parsers: filters, designs, flow steps and triggers.

They are built from the registries of the parsers. A field of a Struct refers to one of them by
`validation.schema_name`.
"""

from typing import Any

from appliance.api.openapi.flow_steps import build_step_schema
from appliance.api.openapi.schema_parts import nullable, reference
from appliance.audience.segments import suggestions
from appliance.content.designs.document import MAX_SECTIONS
from appliance.content.designs.kind import STYLES, THEME, Kind, Prop
from appliance.content.designs.sections import KINDS as SECTION_KINDS
from appliance.core.validation import EVENT_NAME
from appliance.flows.entry_caps import MAX_ENTRIES
from appliance.flows.triggers import MAX_OFFSET_DAYS, TIME_OF_DAY

# A property of a design accepts any plain value, such as both "24px" and 24.
_PLAIN = ["string", "number", "boolean", "null"]


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
        "audience_type": ({"type": "string"}, "`all_contacts`, with `confirm_send_to_all`, for all contacts"),
        "confirm_send_to_all": ({"type": "boolean"}, "true to send to all contacts"),
    }
    return {
        "type": "object",
        "description": "Further parts of a campaign's audience.",
        "properties": {name: schema | {"description": text} for name, (schema, text) in properties.items()},
        "additionalProperties": True,
    }
