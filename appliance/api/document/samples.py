"""Answers as examples: one of every shape that a success has, made from its schema, the story and words kept for it.

Each fits its schema, which `tests/rules/test_examples.py` looks at: a property that is new has a value at once.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import Struct

from appliance.api.declare import Route

# Bodies as examples of every operation that reads one: read in their order they are a story, and each of them works.
#
# Their ids are those that a new account gives when they are sent in this order; `tests/rules/test_examples.py` does
# that.


class Example(NamedTuple):
    """A body, and what it does, by the operation and the id in its path."""

    operation: str
    summary: str
    body: dict[str, Any]
    id: int | None = None


_HEADING = {"type": "heading", "props": {"text": "Hello {{ contact.first_name | default: 'there' }}", "level": 1}}
_TEXT = {"type": "text", "props": {"content": "<p>Our spring menu is out.</p>"}, "styles": {"padding": "16px"}}
_BUTTON = {"type": "button", "props": {"text": "See the menu", "href": "https://example.com/menu"}}
_FOOTER = {"type": "footer", "props": {"unsubscribe_text": "Unsubscribe"}}
DESIGN = {"sections": [_HEADING, _TEXT, _BUTTON, _FOOTER], "theme": {"brand_color": "#0a7d52"}}
IN_FRANCE = [{"name": "contact_country", "predicate": "eq", "value": "FR"}]
_CLICKED = [{"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": "flow_start"}}]
STEPS: list[dict[str, Any]] = [
    {"subject": "Welcome, {{ contact.first_name | default: 'friend' }}", "body": "<p>Good that you are here.</p>"},
    {"duration": 86_400},
    {
        "filters": _CLICKED,
        "yes": [{"event_name": "welcome_read"}],
        "no": [{"subject": "Did you see our menu?", "body": "<p>It is still there.</p>"}],
    },
]

STORY: tuple[Example, ...] = (
    Example("PATCH /account", "Set the time zone and who mail is from", {
        "time_zone": "Europe/Paris", "email_from_name": "Petit Four", "email_from_email": "hello@example.com",
        "frequency_cap": {"messages": 3, "days": 7},
    }),
    Example("PUT /brand", "Say who the company is", {
        "company_name": "Petit Four", "physical_address": "12 rue des Lilas, 75011 Paris", "brand_color": "#0a7d52",
        "links": [{"url": "https://example.com", "title": "Our shop"}],
    }),
    Example("PATCH /user", "Say what the others call one", {"name": "Marie"}),
    Example("POST /users", "Add somebody; the answer shows their password", {
        "email": "jean@example.com", "name": "Jean", "role": "editor",
    }),
    Example("PATCH /users/{id}", "Let them write, and send no more", {"role": "author"}, 2),
    Example("POST /api_keys", "Make a key for a shop; the answer shows it", {
        "name": "Shop", "scope": "contacts:write,events:write",
    }),
    Example("POST /domains", "Add a domain to send from", {"domain": {"name": "news.example.com"}}),
    Example("POST /lists", "Make a list", {"name": "Newsletter", "public": True}),
    Example("PATCH /lists/{id}", "Rename it", {"name": "Newsletter, weekly"}, 1),
    Example("POST /segments", "Keep filters as a segment", {"name": "In France", "filters": IN_FRANCE}),
    Example("PATCH /segments/{id}", "Give it other filters", {"filters": [
        {"name": "group", "predicate": "any", "value": [
            {"name": "contact_country", "predicate": "in", "value": ["FR", "BE"]},
            {"name": "contact_tag", "predicate": "eq", "value": "francophone"},
        ]},
    ]}, 1),
    Example("POST /segments/count", "Count without keeping", {"filters": IN_FRANCE}),
    Example("POST /lists", "Show a segment as a list", {"name": "France", "segment_id": 1}),
    Example("POST /contacts", "Add somebody who has agreed", {
        "email": "ann@example.com", "first_name": "Ann", "country_code": "FR", "list_ids": [1],
        "consent_source": "Checkout: \"Send me news\"", "data": {"tags": ["vip"], "birthday": "1990-04-12"},
    }),
    Example("POST /contacts", "Add somebody with a phone number", {
        "phone": "+14155550123", "first_name": "Bo", "data": {"tags": ["sms"]},
    }),
    Example("PATCH /contacts/{id}", "Change some of their data", {
        "last_name": "Martin", "data_merge": {"shoe_size": 38, "birthday": None},
    }, 1),
    Example("POST /imports", "Import a file", {
        "file": "email,first_name\nemil@example.com,Emil\n", "resource": "contacts",
        "options": '{"list_ids": [1], "consent_source": "Stand at the market"}',
    }),
    Example("POST /events", "Record what they bought, once", {
        "event": "order_paid", "contact_id": 1, "amount": 59.9, "resource_uid": "order:4711",
        "data": {"items": ["tartelette"]}, "idempotency_key": "order-4711-paid",
    }),
    Example("POST /events", "Record something of somebody new", {
        "event": "cart_add", "contact_email": "cleo@example.com", "create_contact": True,
    }),
    Example("POST /events/batch", "Record many at once", {"events": [
        {"event": "product_view", "contact_id": 1, "resource_name": "Tartelette"},
        {"event": "checkout", "contact_email": "cleo@example.com"},
    ]}),
    Example("POST /contacts/{id}/merge", "Merge two who are one", {"contact_id": 3}, 1),
    Example("POST /lists/{id}/contacts/bulk", "Let people join and leave", {"add": ["ann@example.com", 2],
                                                                            "remove": []}, 1),
    Example("POST /suppressions", "Never write to an address again", {
        "address": "gone@example.com", "note": "asked by phone",
    }),
    Example("DELETE /suppressions/{id}", "Take it back", {"reason": "asked by mistake"}, 1),
    Example("POST /forms", "Make a sign-up form", {
        "name": "Footer of the shop", "list_ids": [1], "origins": ["https://example.com"],
        "fields": ["email", {"name": "first_name", "label": "First name"}],
        "consent_text": "Yes, send me the weekly newsletter.",
    }),
    Example("PATCH /forms/{id}", "Lead people on", {"redirect_url": "https://example.com/thanks"}, 1),
    Example("POST /v1/public/forms/{public_key}", "Somebody signs up", {
        "email": "dora@example.com", "first_name": "Dora",
    }),
    Example("POST /templates", "Make a template with a design", {
        "name": "Spring", "subject": "Our spring menu", "preheader": "Strawberries are here", "design": DESIGN,
    }),
    Example("PATCH /templates/{id}", "Change its subject", {"subject": "The spring menu is out"}, 1),
    Example("POST /templates/preview", "Render a design for somebody", {"document": DESIGN, "contact_id": 1}),
    Example("POST /templates/{id}/send_test", "Send a test", {"email": "owner@example.com"}, 1),
    Example("POST /flows", "Welcome whoever joins a list", {
        "name": "Welcome", "trigger": {"event": "list_add", "contact_list_id": 1}, "steps": STEPS,
    }),
    Example("POST /flows/{id}/reject", "Say why it is not to go live", {"note": "The second mail is too soon."}, 1),
    Example("PATCH /flows/{id}", "Wait a day longer, and let the run end once they buy", {
        "goal": "order_paid", "steps": [{**STEPS[0], "id": 1}, {"id": 2, "duration": 172_800}, {**STEPS[2], "id": 3}],
    }, 1),
    Example("POST /flows/{id}/simulate", "Rehearse it with somebody", {
        "contact_id": 1, "events": [{"event": "email_clicked", "after": 3_600}],
    }, 1),
    Example("POST /flows/{id}/simulate_all", "Rehearse it with all who joined in 30 days", {"days": 30}, 1),
    Example("POST /flows/{id}/activate", "Let it begin", {}, 1),
    Example("POST /flows/{id}/enroll", "Let people in who are on the list already", {"contact_ids": [1]}, 1),
    Example("POST /flows/{id}/runs/move_on", "Let whoever waits in a step go on", {"step": 2}, 1),
    Example("POST /flows/{id}/runs/take_out", "Take somebody out", {"run_ids": [1]}, 1),
    Example("POST /flows/{id}/archive", "End it", {"take_out": True}, 1),
    Example("POST /campaigns", "Make a draft", {"name": "Spring menu"}),
    Example("PATCH /campaigns/{id}", "Say for whom it is and what it says", {
        "trigger_attributes": {"contact_list_id": 1},
        "template_attributes": {"subject": "The spring menu is out", "design": DESIGN},
    }, 1),
    Example("POST /campaigns/{id}/duplicate", "Begin another one like it", {"name": "Summer menu"}, 1),
    Example("POST /campaigns/{id}/reject", "Say why it is not to go out", {"note": "A word is missing."}, 1),
    Example("POST /campaigns/{id}/send", "Send it, with fifteen seconds to take it back", {
        "template_attributes": {"subject": "Our spring menu is out"}, "hold_seconds": 15,
    }, 1),
    Example("POST /campaigns", "Make one of SMS with all that it needs", {
        "name": "Open on Sunday", "channel": "sms", "trigger_attributes": {"contact_list_id": 1},
        "template_attributes": {"body": "We are open on Sunday!"},
    }),
    Example("POST /messages", "Send a receipt", {
        "to": "ann@example.com", "subject": "Your order {{ data.number }}", "data": {"number": "4711"},
        "body": '<p>Thank you! <a href="https://example.com/orders/4711">See your order</a></p>',
        "tags": {"kind": "receipt"},
    }),
    Example("POST /messages", "Send an SMS", {
        "channel": "sms", "to": "+14155550123", "body": "Your table is ready.",
    }),
    Example("POST /capture/{id}/simulate", "Let the recipient of a captured SMS answer", {
        "action": "reply", "text": "Thanks!",
    }),
    Example("POST /incoming/{id}/seen", "Note that somebody has read the answer", {"opt_out": False}, 1),
    Example("POST /webhooks", "Be told of orders and opt-outs", {
        "url": "https://example.com/hooks/campanero", "events": ["order_paid", "opt_out"], "enabled": True,
    }),
    Example("PATCH /webhooks/{id}", "Be told of bounces", {"events": ["order_paid", "opt_out", "email_bounced"]}, 1),
    Example("POST /webhooks/{id}/test", "Try it with an invented event", {"event": "order_paid"}, 1),
    Example("POST /webhooks/{id}/replay_failed", "Send again what was given up", {"since": "2026-11-20T00:00:00Z"}, 1),
)  # fmt: skip


def examples_of(operation: str) -> dict[str, Any]:
    """Return the examples of an operation, as a media type shows them; empty if there is none."""
    found = [one for one in STORY if one.operation == operation]
    return {f"{number}": {"summary": one.summary, "value": one.body} for number, one in enumerate(found, 1)}


# Values that stand in the examples of answers: by the name of a property, and by kind where that says more.

_THEN, _LATER = "2026-11-20T09:30:00.000Z", "2026-11-20T09:31:12.480Z"

NAMES: dict[str, Any] = {
    **dict.fromkeys(("account_id", "campaign_id", "contact_id", "id", "segment_id", "contact_list_id", "count"), 1),
    **dict.fromkeys(("accepted", "added", "audience", "changed", "created", "total", "sent", "delivered"), 1),
    **dict.fromkeys(
        ("can_send", "complete", "domain_verified", "editable", "enabled", "holds", "matches", "ok", "opt_in",
         "passed", "sendable_email", "subscribed", "subscribed_email", "success", "using_sandbox", "verified"), True,
    ),
    **dict.fromkeys(("created_at", "started_at", "since", "entered_at", "sent_at", "from", "last_login_at"), _THEN),
    **dict.fromkeys(
        ("updated_at", "at", "until", "exported_at", "last_seen_at", "delivered_at", "expires_at", "opt_in_at",
         "completed_at", "last_populated_at"), _LATER,
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
    "data": {"tags": ["vip"], "birthday": "1990-04-12"},
    "days": 30,
    "description": "Five sections to begin from",
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
    "message": "contact.nickname is known to nobody and stays empty",
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

# All of a kind
WHOLE: dict[str, Any] = {"Design": DESIGN, "Filter": IN_FRANCE[0]}
# What may be null, and is shown all the same
FILLED = {"TimelineEntry": ("event",)}
# Of a kind, where a name means something else
KINDS: dict[str, Any] = {
    "Account": {"name": "Petit Four", "email_from_name": "Petit Four", "email_from_email": "hello@example.com",
                "version": "1.0.0"},
    "ApiKey": {"id": 2, "hint": "9fQz", "name": "Shop"},
    "ApiKeyWithSecret": {"id": 2, "hint": "9fQz", "key": "camp_live_mB7cQ2xV9tR4sYw8Kd1nLp6hJz3gFq5a9fQz"},
    "AudiencePart": {"kind": "list", "name": "Newsletter, weekly"},
    "Books": {"delivered_to": 1, "sum": 1, "adds_up": True},
    "Brand": {"brand_color": "#0a7d52", "links": [{"url": "https://example.com", "icon": "", "title": "Our shop"}]},
    "Campaign": {"name": "Spring menu", "data": {}, "status": "active", "phase": "sending",
                 "approval_state": "approved", "sent_count": 1, "audience_count": 1},
    "CampaignExplained": {"in_audience": True, "sentence": "Ann Martin gets it: she is in Newsletter, weekly."},
    "Captured": {"from": "Petit Four <hello@example.com>"},
    "CapturedDetail": {"from": "Petit Four <hello@example.com>", "message": None, "headers": [
        {"name": "Subject", "value": "The spring menu is out"},
    ]},
    "Channel": {"data": {}, "value": "ann@example.com"},
    "ConsentRow": {"act": "opt_in", "source": "api", "text": "Checkout: \"Send me news\"", "data": {}},
    "ContactList": {"name": "Newsletter, weekly", "sendable_count": {"email": 1, "sms": 0}},
    "ContactWritten": {"kept_opt_out": []},
    "DnsRecord": {"record_type": "TXT", "name": "c1._domainkey.news.example.com", "value": "v=DKIM1; k=rsa; p=MIIB...",
                  "priority": "", "found": [], "problem": None},
    "End": {"status": "completed", "reason": None, "says": "Alex Sample has come to the end."},
    "Entry": {"says": "\"Welcome, Alex\" is sent.", "reason": None, "event": None, "data": None},
    "Event": {"data": {"items": ["tartelette"]}, "amount": 59.9, "idempotency_key": "order-4711-paid"},
    "Flow": {"data": {}, "status": "active", "approval_state": "approved", "version": 1, "templates": [],
             "steps": [_STEP]},
    "FlowChanged": {"data": {}, "status": "active", "approval_state": "approved", "version": 2, "templates": [],
                    "steps": [_STEP], "scripts": []},
    "FlowSpec": {"trigger": {}},
    "FlowStarter": {"trigger": {"event": "list_add"}, "steps": STEPS},
    "FlowStep": {"filters": [], "duration": 0},
    "FlowTrigger": {"event": "list_add", "data": {}, "contact_list_id": 1, "segment_id": None},
    "Import": {"columns": [{"name": "email", "target": "email", "samples": ["emil@example.com"]}], "format": "csv",
               "status": "complete", "phase": None, "bytes": 36, "processed": 1, "progress": 1.0},
    "Incoming": {"from": "+14155550123", "to": "+15550009999", "body": "Thanks!"},
    "Message": {"id": 991, "contact_id": 1, "from": "Petit Four <hello@example.com>", "status": "delivered",
                "attempts": 1, "provider": "direct"},
    "MessageDetail": {"id": 991, "contact_id": 1, "from": "Petit Four <hello@example.com>", "status": "delivered",
                      "attempts": 1, "provider": "direct"},
    "MessageText": {"headers": {}, "data": {"number": "4711"}},
    "Named": {"name": "Newsletter, weekly"},
    "Preflight": {"blockers": []},
    "PreflightFacts": {"sendable": 1, "skipped": {}},
    "Report": {"tracking": True},
    "Row": {"name": "contact_country", "predicate": "eq", "value": "FR", "actual": "FR", "rows": []},
    "Segment": {"name": "In France"},
    "SendingDomain": {"name": "news.example.com", "status": "verified", "verified_at": _LATER, "checked_at": _LATER},
    "SignedIn": {"token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"},
    "SignedInUser": {"name": "Marie", "role": "owner"},
    "StarterShape": {"name": "announcement", "label": "Announcement"},
    "Stats": _SUMS,
    "StepField": {"name": "subject", "label": "Subject", "type": "text", "required": True},
    "StepKind": {"label": "E-mail"},
    "FlowStats": {**_SUMS, "entered": 1, "active": 1},
    "Suppression": {"address": "gone@example.com", "reason": "manual"},
    "Template": {"id": 4, "flow_id": None, "action_id": None, "name": "Spring", "variables": {}},
    "TestResult": {"to": "owner@example.com", "email": "owner@example.com", "message_id": 992},
    "Transports": {"email": "direct", "sms": "capture"},
    "Trigger": {"event": "manual", "data": {}, "contact_list_id": 1, "segment_id": None},
    "Upload": {"filename": "logo.png", "url": "https://mail.example.com/m/Xk3Qv9Lt2a"},
    "User": {"id": 2, "name": "Jean", "email": "jean@example.com", "role": "editor"},
    "UserWithPassword": {"id": 2, "password": "k3Qv9-Lt2aX-4tZ8s-Yw2mB"},
    "Webhook": {"events": ["order_paid", "opt_out"]},
    "WebhookDelivery": {"status": "delivered", "response_status": 200, "attempts": 1},
    "WebhookWithSecret": {"events": ["order_paid", "opt_out"], "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
}  # fmt: skip


# Shapes lie in shapes; below this lists are empty and what may be null is
_MAX_DEPTH = 4
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip
_PLAIN: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}}


class Samples:
    """Makes values of the schemas of a document."""

    def __init__(self, schemas: dict[str, Any], routes: Iterable[Route]) -> None:
        self._schemas = schemas
        self._told = _told(routes)

    def all(self, kinds: set[str], lists: set[str]) -> dict[str, Any]:
        """Return `components.examples`: by the names of kinds, and of lists of a kind."""
        found = {kind: {"value": self.of(kind)} for kind in kinds}
        return dict(sorted({**found, **{f"ListOf{kind}": {"value": [self.of(kind)]} for kind in lists}}.items()))

    def of(self, kind: str, level: int = 0) -> Any:
        """Return a value of a named schema."""
        schema = self._schemas[kind]
        if kind in WHOLE:
            return WHOLE[kind]
        return self._object(schema, kind, level)

    def _object(self, schema: dict[str, Any], kind: str, level: int) -> Any:
        if "properties" not in schema:
            return self._value(schema, kind, level)
        own = {**self._told.get(kind, {}), **KINDS.get(kind, {})}
        wanted = schema.get("required", ())
        found = {}
        for name, one in schema["properties"].items():
            for kept in (own, NAMES):
                if name in kept and self._fits(one, kept[name]):
                    found[name] = kept[name]
                    break
            else:
                if name in wanted:
                    one = one["anyOf"][0] if name in FILLED.get(kind, ()) else one
                    found[name] = self._value(one, name, level + 1)
        return found

    def _value(self, schema: dict[str, Any], name: str, level: int) -> Any:
        if "$ref" in schema:
            return self.of(schema["$ref"].rpartition("/")[2], level)
        for one in ("const", "enum"):
            if one in schema:
                return schema[one][0] if one == "enum" else schema[one]
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
        """Return whether a value that is kept for a name is of the type that the name has here."""
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
                return not isinstance(value, list) or all(self._fits(schema.get("items", {}), one) for one in value)
        return False


def _told(routes: Iterable[Route]) -> dict[str, dict[str, Any]]:
    """Return what the story says of a shape: the plain values of the body by which one is made."""
    found: dict[str, dict[str, Any]] = {}
    for route in routes:
        shown = examples_of(f"{route.method} {route.path}")
        if route.returns is None or route.status != 201 or not shown:
            continue
        said = {name: value for name, value in shown["1"]["value"].items() if not isinstance(value, dict)}
        kinds: tuple[type, ...] = route.returns.__mro__
        for kind in kinds:
            if kind is not Struct and issubclass(kind, Struct):
                found.setdefault(kind.__name__, said)
    return found
