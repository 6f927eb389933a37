"""Schemas of what is read by readers of its own: designs, filters and steps, made from their registries.

A Struct names one of them by `fields.named`.
"""

from typing import Any

from appliance.designs.document import MAX_SECTIONS
from appliance.designs.kind import STYLES
from appliance.designs.props import Prop
from appliance.designs.sections import KINDS
from appliance.designs.theme import THEME
from appliance.fields import EVENT_NAME
from appliance.filters import spec
from appliance.flows.document import KEYS
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.wait import MAX_SECONDS

# A person's "24px", a script's 24: both are read, so both may stand there
_PLAIN = ["string", "number", "boolean", "null"]


def schemas() -> dict[str, Any]:
    """Return them by name."""
    return {
        "Filter": _filter(), "Design": _design(), "DesignSection": _section(), "DesignTheme": _theme(),
        "FlowStepWrite": _step(), "FlowTriggerWrite": _trigger(),
    }  # fmt: skip


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}], "description": text}


def _filter() -> dict[str, Any]:
    known = spec.spec()
    predicates = sorted({one["predicate"] for tests in known["types"].values() for one in tests})
    names = ", ".join(one["name"] for one in known["fields"])
    return {
        "type": "object",
        "description": "A condition that a person meets or not. Filters side by side all have to hold; `group` joins "
        "them in other ways. Texts are compared without case; a negative predicate also holds for whom nothing is "
        "known. `GET /segments/spec` tells which predicates a name has.",
        "properties": {
            "name": {"type": "string", "description": f"what is looked at: {names}, or a field of Contact"},
            "predicate": {"enum": predicates, "description": "how it is compared"},
            "value": {"description": "what it is compared with, of the type that the name and the predicate ask for"},
        },
        "required": ["name", "predicate"],
        "additionalProperties": False,
    }


def _prop(prop: Prop) -> dict[str, Any]:
    words = ". ".join(filter(None, (prop.label, prop.help)))
    return {"type": _PLAIN, "description": words[:1].lower() + words[1:]}


def _design() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "An email design. It is stored and answered as it was sent.",
        "properties": {
            "sections": {
                "type": "array", "maxItems": MAX_SECTIONS, "items": _ref("DesignSection"),
                "description": "its sections, from top to bottom",
            },
            "theme": _or_null(_ref("DesignTheme"), "colours, fonts and logo; what is absent is taken from the brand"),
        },
    }  # fmt: skip


def _section() -> dict[str, Any]:
    kinds = ", ".join(kind.name for kind in KINDS)
    styles = {
        "type": ["object", "null"], "properties": {one.name: _prop(one) for one in STYLES},
        "description": "what surrounds it; `props` go before these",
    }  # fmt: skip
    return {
        "type": "object",
        "description": "A section of a design.",
        "properties": {
            "id": {"type": ["string", "integer", "null"], "description": "a name of yours for it"},
            "type": {
                "type": ["string", "null"],
                "description": f"its kind: {kinds}. Where it is absent the kind follows from the names in `props`. One "
                "that nobody knows is kept, and keeps the message from being sent",
            },
            "props": {"type": ["object", "null"], "description": "its properties; `GET /templates/spec` names those of "
                      "each kind"},
            "styles": styles,
        },
    }  # fmt: skip


def _theme() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "How a design looks where its sections do not say otherwise.",
        "properties": {one.name: _prop(one) for one in THEME},
    }


# The types of the keys of a step; a kind of step that brings another one says here what it is
_STEP_KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "id": ({"type": "integer"}, "the step that this one was until now; absent: a new one"),
    "type": ({"enum": [*BY_TYPE]}, "what it does; follows from its keys where it is not said"),
    "subject": ({"type": "string", "maxLength": 998}, "of an e-mail, with merge tags"),
    "body": ({"type": "string"}, "HTML or text of an e-mail; by itself the text of an SMS"),
    "preheader": ({"type": "string", "maxLength": 255}, "the line that mailboxes show beside the subject"),
    "from_name": ({"type": "string", "maxLength": 255}, "the sender's name; absent: the account's"),
    "from_email": ({"type": "string"}, "the sender's address; absent: the account's"),
    "reply_to": ({"type": "string"}, "where answers go; absent: to the sender"),
    "design": (_ref("Design"), "the design of an e-mail"),
    "transactional": ({"type": "boolean"}, "whether it goes out without consent, footer and tracking"),
    "template_id": ({"type": "integer"}, "the template that holds its words; read-only"),
    "duration": ({"type": "integer", "minimum": 0, "maximum": MAX_SECONDS}, "seconds to wait"),
    "filters": ({"type": "array", "items": _ref("Filter")}, "which branch is taken: `yes` if all hold"),
    "yes": ({"type": "array", "items": _ref("FlowStepWrite")}, "the steps for whom the filters hold"),
    "no": ({"type": "array", "items": _ref("FlowStepWrite")}, "the steps for whom they do not"),
    "event_name": ({"type": "string"}, "an event to record, `^[a-z][a-z0-9_]{0,63}$`"),
    "event_data": ({"type": "object"}, "what that event says"),
    "forward_event_data": ({"type": "boolean"}, "whether it also says what the one said that started the run"),
    "contact_list_id": ({"type": "integer"}, "the list to join or leave, by `type`"),
    "data_merge": ({"type": "object"}, "a JSON merge patch (RFC 7396) of the person's `data`, by `type`"),
}


def _step() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A step of a flow. What it is follows from its keys, or from `type`; `GET /flows/spec` tells "
        "which keys go together. Null, empty and zero count as absent.",
        "properties": {name: _or_null(*_STEP_KEYS[name]) for name in _STEP_KEYS if name in KEYS},
        "additionalProperties": False,
    }


def _trigger() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 1}
    return {
        "type": "object",
        "description": "What starts a flow, and for whom.",
        "properties": {
            "event": _or_null(
                {"type": "string", "pattern": f"^$|{EVENT_NAME}"},
                "the event that starts it; `manual`, null or empty: none is chosen yet, and it cannot go live",
            ),
            "segment_id": _or_null(number, "a segment that they have to be in; by itself: coming into it starts it"),
            "contact_list_id": _or_null(number, "the list that they join or leave"),
            "data": _or_null(
                {"type": "object"},
                "when it starts again (`frequency`), filters (`where`), `keywords`, `tag`; for `date_reached` `path`, "
                "`yearly`, `offset_days`, `at`",
            ),
        },
        "additionalProperties": False,
    }
