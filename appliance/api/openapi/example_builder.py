"""Build examples of responses from the schemas of the OpenAPI document, with the values of the example requests."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from appliance.api.endpoints import Route
from appliance.api.openapi.examples import DESIGN, IN_FRANCE, STEPS, find_examples

_SENT_AT, _DELIVERED_AT = "2026-11-20T09:30:00.000Z", "2026-11-20T09:31:12.480Z"

VALUES_BY_NAME: dict[str, Any] = {
    **dict.fromkeys(("account_id", "campaign_id", "contact_id", "id", "segment_id", "contact_list_id", "count"), 1),
    **dict.fromkeys(("accepted", "added", "audience", "changed", "created", "total", "sent", "delivered"), 1),
    **dict.fromkeys(
        ("can_send", "complete", "domain_verified", "editable", "enabled", "matches", "ok", "opt_in",
         "passed", "sendable_email", "subscribed", "subscribed_email", "success", "using_sandbox", "verified"), True,
    ),
    **dict.fromkeys(
        ("created_at", "started_at", "since", "entered_at", "sent_at", "from", "last_login_at", "due_at",
         "taken_at"), _SENT_AT
    ),
    **dict.fromkeys(
        ("updated_at", "at", "until", "exported_at", "last_seen_at", "delivered_at", "expires_at", "opt_in_at",
         "completed_at", "last_populated_at"), _DELIVERED_AT,
    ),
    **{name: [] for name in ("yes", "no", "blockers", "events", "flow_runs", "message_texts")},
    "action": "campaign_send",
    "actor": "user:1",
    "actor_name": "Marie",
    "address": "ann@example.com",
    "base_url": "https://mail.example.com",
    "body": "<p>Our spring menu is out.</p>",
    "bytes": 18_432,
    "channel": "email",
    "character": "\u2019",
    "code": "unknown_merge_tag",
    "company_name": "Petit Four",
    "contacts_count": 1,
    "content_type": "image/png",
    "country": "FR",
    "country_code": "FR",
    "language": "fr",
    "data": {"tags": ["vip"], "birthday": "1990-04-12"},
    "days": 30,
    "description": "Five sections for an announcement",
    "design": DESIGN,
    "domain": "example.com",
    "domains": [],
    "email": "ann@example.com",
    "event": "order_paid",
    "event_data": {"items": ["tartelette"]},
    "event_name": "welcome_read",
    "field": "template_attributes.body",
    "filename": "people.csv",
    "filters": IN_FRANCE,
    "first_name": "Ann",
    "flow_name": "Welcome",
    "from_email": "hello@example.com",
    "from_name": "Petit Four",
    "group": "orders",
    "headers": {"X-Campanero-Id": "991"},
    "height": 400,
    "html": "<!doctype html><html lang=\"en\"><body><p>Our spring menu is out.</p></body></html>",
    "html_bytes": 18_432,
    "icon": "mail",
    "internet_message_id": "<991.k3@news.example.com>",
    "ip": "203.0.113.0",
    "key": "welcome",
    "kind": "email",
    "label": "Welcome",
    "last_name": "Martin",
    "limits": {},
    "list_ids": [1],
    "locale": "en",
    "logo": "https://mail.example.com/m/Xk3Qv9Lt2a",
    "mail_from": "b.991.k3@bounce.example.com",
    "message": "contact.nickname is not a known merge tag and stays empty",
    "message_id": 991,
    "name": "Ann Martin",
    "note": "asked by phone",
    "path": "steps[0]",
    "people": "/flows/1/runs?step=1",
    "physical_address": "12 rue des Lilas, 75011 Paris",
    "preheader": "Strawberries are here",
    "preview": "Our spring menu is out.",
    "progress": 1.0,
    "provider": "direct",
    "public_key": "camp_pub_4tZ8sYw2",
    "public_url": "https://mail.shop.example",
    "rate": 1.0,
    "reason": "hard_bounce",
    "resource_uid": "order:4711",
    "sample": [],
    "scope": "contacts:write,events:write",
    "sender": "hello@example.com",
    "sentence": "country is FR",
    "signed_id": "Xk3Qv9Lt2a",
    "source": "api",
    "source_name": "Spring menu",
    "source_type": "campaign",
    "status": "sent",
    "subject": "The spring menu is out",
    "tags": {"kind": "receipt"},
    "text": "Our spring menu is out.",
    "time_zone": "Europe/Paris",
    "title": "Our shop",
    "to": "ann@example.com",
    "transport": "direct",
    "trigger": {"event": "list_add", "segment_id": None, "contact_list_id": 1, "data": {}},
    "type": "email",
    "url": "https://example.com/hooks/campanero",
    "user_agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "uuid": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "value": "ann@example.com",
    "verification_status": "verified",
    "version": 1,
    "width": 1200,
}  # fmt: skip

_STEP = {
    "id": 1, "type": "email", **STEPS[0], "preheader": "", "duration": 0, "filters": [], "yes": [], "no": [],
    "event_name": "", "forward_event_data": False, "template_id": 4,
}  # fmt: skip
_SUMS = {"audience": 1, "sent": 1, "delivered": 1, "accepted": 1}

# The examples of schemas that are not built from single properties.
WHOLE_VALUES: dict[str, Any] = {"Design": DESIGN, "Filter": IN_FRANCE[0]}
# The nullable properties that the example of a schema shows with a value instead of null.
NON_NULL = {"TimelineEntry": ("event",)}
# The values of properties in the example of one schema.
VALUES_BY_SCHEMA: dict[str, Any] = {
    "Account": {
        "name": "Petit Four",
        "email_from_name": "Petit Four",
        "email_from_email": "hello@example.com",
        "version": "1.0.0",
    },
    "ApiKey": {"id": 2, "hint": "9fQz", "name": "Shop"},
    "ApiKeyWithSecret": {"id": 2, "hint": "9fQz", "key": "camp_live_mB7cQ2xV9tR4sYw8Kd1nLp6hJz3gFq5a9fQz"},
    "AudiencePart": {"kind": "list", "name": "Newsletter, weekly"},
    "LedgerFigures": {"delivered_to": 1, "sum": 1, "adds_up": True},
    "Brand": {"brand_color": "#0a7d52", "links": [{"url": "https://example.com", "icon": "", "title": "Our shop"}]},
    "Campaign": {
        "name": "Spring menu",
        "data": {},
        "status": "active",
        "phase": "sending",
        "approval_state": "approved",
        "sent_count": 1,
        "audience_count": 1,
    },
    "AudienceExplanation": {"in_audience": True, "sentence": "Ann Martin gets it: she is in Newsletter, weekly."},
    "BackupFile": {"name": "campanero-20261124T093000Z.tar.gz", "size": 1_204_000, "scheduled": True},
    "CopyRun": {"kind": "copy", "state": "succeeded", "copy": "20261124T093000Z-586727cff368", "size": 31_746},
    "StoredCopy": {"name": "20261124T093000Z-586727cff368", "size": 31_746, "full": True},
    "CapturedMessage": {"from": "Petit Four <hello@example.com>"},
    "CapturedMessageDetail": {
        "from": "Petit Four <hello@example.com>",
        "message": None,
        "headers": [
            {"name": "Subject", "value": "The spring menu is out"},
        ],
    },
    "Channel": {"data": {}, "value": "ann@example.com"},
    "ConsentRow": {"act": "opt_in", "source": "api", "text": 'Checkout: "Send me news"', "data": {}},
    "ContactList": {"name": "Newsletter, weekly", "sendable_count": {"email": 1, "sms": 0}},
    "ContactWritten": {"kept_opt_out": []},
    "DnsRecord": {
        "record_type": "TXT",
        "name": "c1._domainkey.news.example.com",
        "value": "v=DKIM1; k=rsa; p=MIIB...",
        "priority": "",
        "found": [],
        "problem": None,
    },
    "SimulationEnd": {"status": "completed", "reason": None, "description": "Alex Sample has come to the end."},
    "SimulationEntry": {"description": '"Welcome, Alex" is sent.', "reason": None, "event": None, "data": None},
    "RecordedEvent": {"data": {"items": ["tartelette"]}, "amount": 59.9, "idempotency_key": "order-4711-paid"},
    "Flow": {
        "data": {},
        "status": "active",
        "approval_state": "approved",
        "version": 1,
        "templates": [],
        "steps": [_STEP],
    },
    "FlowChanged": {
        "data": {},
        "status": "active",
        "approval_state": "approved",
        "version": 2,
        "templates": [],
        "steps": [_STEP],
        "scripts": [],
    },
    "FlowSpec": {"trigger": {}},
    "FlowStarter": {"trigger": {"event": "list_add"}, "steps": STEPS},
    "FlowStep": {"filters": [], "duration": 0},
    "FlowTrigger": {"event": "list_add", "data": {}, "contact_list_id": 1, "segment_id": None},
    "Import": {
        "columns": [{"name": "email", "target": "email", "samples": ["emil@example.com"]}],
        "format": "csv",
        "status": "complete",
        "phase": None,
        "bytes": 36,
        "processed": 1,
        "progress": 1.0,
    },
    "IncomingMessage": {"from": "+14155550123", "to": "+15550009999", "body": "Thanks!"},
    "Message": {
        "id": 991,
        "contact_id": 1,
        "from": "Petit Four <hello@example.com>",
        "status": "delivered",
        "attempts": 1,
        "provider": "direct",
    },
    "MessageDetail": {
        "id": 991,
        "contact_id": 1,
        "from": "Petit Four <hello@example.com>",
        "status": "delivered",
        "attempts": 1,
        "provider": "direct",
    },
    "SentMessage": {"id": 991, "contact_id": 1, "from": "Petit Four <hello@example.com>", "provider": "direct"},
    "MessageRecipient": {"id": 991, "kind": "to", "address": "ann@example.com", "status": "queued"},
    "MessageAttachment": {"filename": "Invoice 4711.txt", "content_type": "text/plain", "content_id": None, "size": 14},
    "MessageBatchResult": {"queued": 1, "rejected": 0},
    "BatchResult": {"status": 201, "code": None, "reason": None, "errors": {}},
    "MessageText": {"headers": {}, "data": {"number": "4711"}},
    "ListName": {"name": "Newsletter, weekly"},
    "Preflight": {"blockers": []},
    "PreflightFacts": {"sendable": 1, "skipped": {}},
    "CampaignReport": {"tracking": True},
    "FilterResult": {"name": "contact_country", "predicate": "eq", "value": "FR", "actual": "FR", "rows": []},
    "Segment": {"name": "In France"},
    "SendingDomain": {
        "name": "news.example.com",
        "status": "verified",
        "verified_at": _DELIVERED_AT,
        "checked_at": _DELIVERED_AT,
    },
    "SignedIn": {"token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"},
    "SignedInUser": {"name": "Marie", "role": "owner"},
    "EmailStarter": {"name": "announcement", "label": "Announcement"},
    "CampaignStats": _SUMS,
    "StepField": {"name": "subject", "label": "Subject", "type": "text", "required": True},
    "StepKind": {"label": "E-mail"},
    "FlowStats": {**_SUMS, "entered": 1, "active": 1},
    "Suppression": {"address": "gone@example.com", "reason": "manual"},
    "Template": {"id": 4, "flow_id": None, "action_id": None, "name": "Spring", "variables": {}, "languages": ["de"]},
    "TemplateTranslation": {"language": "de", "translated": 1, "changed": 0, "missing": 4},
    "TestResult": {"to": "owner@example.com", "email": "owner@example.com", "message_id": 992},
    "TranslatedText": {
        "id": "subject",
        "label": "Subject",
        "section": "",
        "kind": "line",
        "source": "The spring menu is out",
        "text": "Die Frühlingskarte ist da",
        "state": "translated",
    },
    "TranslationCounts": {"language": "de", "translated": 1, "changed": 0, "missing": 4},
    "Transports": {"email": "direct", "sms": "capture"},
    "Trigger": {"event": "manual", "data": {}, "contact_list_id": 1, "segment_id": None},
    "Upload": {"filename": "logo.png", "url": "https://mail.example.com/m/Xk3Qv9Lt2a"},
    "User": {"id": 2, "name": "Jean", "email": "jean@example.com", "role": "editor"},
    "UserWithPassword": {"id": 2, "password": "k3Qv9-Lt2aX-4tZ8s-Yw2mB"},
    "Webhook": {"events": ["order_paid", "opt_out"]},
    "WebhookDelivery": {"status": "delivered", "response_status": 200, "attempts": 1},
    "WebhookWithSecret": {"events": ["order_paid", "opt_out"], "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
}


# Lists of objects below this depth are empty, because some schemas contain themselves.
_MAX_DEPTH = 4
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip
_PLAIN: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}}


class ExampleBuilder:
    """A builder of example values for the schemas of a document.

    The value of a property comes from VALUES_BY_SCHEMA, or else from the example request that creates an object of the
    schema, or else from VALUES_BY_NAME. Without any of these it is a plain value of the type of the property.
    """

    def __init__(self, schemas: dict[str, Any], routes: Iterable[Route]) -> None:
        self._schemas = schemas
        self._story_values = _collect_story_values(routes)

    def build_all(self, kinds: set[str], lists: set[str]) -> dict[str, Any]:
        """Return `components.examples`: an example of each schema in `kinds`, and `ListOf…` for those in `lists`."""
        examples = {kind: {"value": self.build(kind)} for kind in kinds}
        return dict(sorted({**examples, **{f"ListOf{kind}": {"value": [self.build(kind)]} for kind in lists}}.items()))

    def build(self, kind: str, level: int = 0) -> Any:
        """Return an example value of the schema `kind`; `level` is the depth at which it appears."""
        schema = self._schemas[kind]
        if kind in WHOLE_VALUES:
            return WHOLE_VALUES[kind]
        return self._object(schema, kind, level)

    def _object(self, schema: dict[str, Any], kind: str, level: int) -> Any:
        if "properties" not in schema:
            return self._value(schema, kind, level)
        schema_values = {**self._story_values.get(kind, {}), **VALUES_BY_SCHEMA.get(kind, {})}
        required = schema.get("required", ())
        example = {}
        for name, property_schema in schema["properties"].items():
            for values in (schema_values, VALUES_BY_NAME):
                if name in values and self._fits(property_schema, values[name]):
                    example[name] = values[name]
                    break
            else:
                if name in required:
                    property_schema = property_schema["anyOf"][0] if name in NON_NULL.get(kind, ()) else property_schema
                    example[name] = self._value(property_schema, name, level + 1)
        return example

    def _value(self, schema: dict[str, Any], name: str, level: int) -> Any:
        if "$ref" in schema:
            return self.build(schema["$ref"].rpartition("/")[2], level)
        for keyword in ("const", "enum"):
            if keyword in schema:
                return schema[keyword][0] if keyword == "enum" else schema[keyword]
        if parts := schema.get("anyOf"):
            plain = [part for part in parts if part.get("type") != "null"]
            return None if len(plain) < len(parts) else self._value(plain[0], name, level)
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "array":
            is_shape = "$ref" in schema.get("items", {}) and level < _MAX_DEPTH
            return [self._value(schema["items"], name, level + 1)] if is_shape else []
        return schema.get("minimum", 0) if kind == "integer" else _PLAIN.get(str(kind))

    def _fits(self, schema: dict[str, Any], value: Any) -> bool:
        """Return whether a value has a type that the schema allows, all required keys, and entries that fit."""
        if "$ref" in schema:
            return self._fits(self._schemas[schema["$ref"].rpartition("/")[2]], value)
        if "anyOf" in schema:
            return any(self._fits(part, value) for part in schema["anyOf"])
        if "enum" in schema:
            return value in schema["enum"]
        if isinstance(value, dict) and not set(schema.get("required", ())) <= set(value):
            return False
        kinds = schema.get("type", "null")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)):
                return not isinstance(value, list) or all(self._fits(schema.get("items", {}), item) for item in value)
        return False


def _collect_story_values(routes: Iterable[Route]) -> dict[str, dict[str, Any]]:
    """Return, by schema name, the values in the first example request that creates an object of the schema."""
    values_by_schema: dict[str, dict[str, Any]] = {}
    for route in routes:
        examples = find_examples(f"{route.method} {route.path}")
        if route.response_type is None or route.status != 201 or not examples:
            continue
        values = {name: value for name, value in examples["1"]["value"].items() if not isinstance(value, dict)}
        kinds: tuple[type, ...] = route.response_type.__mro__
        for kind in kinds:
            if kind is not Struct and issubclass(kind, Struct):
                values_by_schema.setdefault(kind.__name__, values)
    return values_by_schema
