"""Bodies as examples of every operation that reads one: read in their order they are a story, and each of them works.

Their ids are those that a new account gives when they are sent in this order; `tests/rules/test_examples.py` does that.
"""

from typing import Any, NamedTuple


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


def of(operation: str) -> dict[str, Any]:
    """Return the examples of an operation, as a media type shows them; empty if there is none."""
    found = [one for one in STORY if one.operation == operation]
    return {f"{number}": {"summary": one.summary, "value": one.body} for number, one in enumerate(found, 1)}
