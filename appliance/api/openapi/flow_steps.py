"""The schemas of the steps of flows, and of their branches, in the OpenAPI document."""

from typing import Any

from appliance.api.openapi.schema_parts import nullable, reference
from appliance.audience.contacts.write import MAX_TAG_CHARACTERS
from appliance.flows.document import STEP_KEYS
from appliance.flows.local_time import WEEKDAYS
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
