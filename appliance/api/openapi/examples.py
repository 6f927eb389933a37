"""Examples of request bodies of the OpenAPI document; `example_builder.py` builds those of responses.

A test sends the requests to a new account and checks every example against its schema
(`tests/rules/test_examples.py`).
"""

from typing import Any, NamedTuple

# The example requests succeed when they are sent to a new account in the order of STORY, because they create the
# objects whose ids later requests contain.


class Example(NamedTuple):
    """An example request: its operation, such as `PATCH /contacts/{id}`, summary, body, and the id in its path."""

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
# `updated_at` of an object as a client read it; in the future, so that the example works at any time
_READ_AT = "2099-12-31T09:30:00.000Z"
_TEST = {"type": "random_split", "metric": "clicks", "branches": [{"name": "Short", "share": 50}, {"share": 50}]}
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
    Example("PATCH /account", "Set the time zone and the default sender", {
        "time_zone": "Europe/Paris", "email_from_name": "Petit Four", "email_from_email": "hello@example.com",
        "frequency_cap": {"messages": 3, "days": 7},
    }),
    Example("PUT /brand", "Set the company and its address", {
        "company_name": "Petit Four", "physical_address": "12 rue des Lilas, 75011 Paris", "brand_color": "#0a7d52",
        "links": [{"url": "https://example.com", "title": "Our shop"}],
    }),
    Example("PATCH /user", "Change your name", {"name": "Marie"}),
    Example("PATCH /user/sessions/{id}", "Name the device of a session", {"name": "Laptop in the shop"}, 1),
    Example("POST /users", "Add a user; the response contains the password", {
        "email": "jean@example.com", "name": "Jean", "role": "editor",
    }),
    Example("PATCH /users/{id}", "Change the role to author", {"role": "author"}, 2),
    Example("POST /api_keys", "Create a key for a shop; the response contains it", {
        "name": "Shop", "scope": "contacts:write,events:write",
    }),
    Example("POST /roles", "Create a role for an agency that sees no addresses", {
        "name": "Agency", "scopes": ["campaigns:write", "templates:write"], "contact_data": "masked",
    }),
    Example("PATCH /roles/{id}", "Let the agency see flows", {
        "scopes": ["campaigns:write", "templates:write", "flows:read"],
    }, 1),
    Example("POST /invitations", "Invite an author for three days", {
        "email": "ines@example.com", "role": "author", "days": 3,
    }),
    Example("POST /sign_in_providers", "Let people sign in with Google", {
        "name": "Google", "issuer": "https://accounts.google.com", "client_id": "1234.apps.googleusercontent.com",
        "client_secret": "the secret from the console", "domains": ["example.com"], "role": "editor",
    }),
    Example("PATCH /sign_in_providers/{id}", "Let only invited people join", {"domains": []}, 1),
    Example("PATCH /sign_in", "Allow passwords", {"password": True}),
    Example("POST /domains", "Add a sending domain", {"domain": {"name": "news.example.com"}}),
    Example("POST /lists", "Create a list", {"name": "Newsletter", "public": True}),
    Example("PATCH /lists/{id}", "Rename a list", {"name": "Newsletter, weekly"}, 1),
    Example("POST /segments", "Create a segment", {"name": "In France", "filters": IN_FRANCE}),
    Example("PATCH /segments/{id}", "Change the filters", {"filters": [
        {"name": "group", "predicate": "any", "value": [
            {"name": "contact_country", "predicate": "in", "value": ["FR", "BE"]},
            {"name": "contact_tag", "predicate": "eq", "value": "francophone"},
        ]},
    ]}, 1),
    Example("POST /proposals", "Propose to change a segment", {
        "kind": "change_segment", "subject_id": 1, "changes": {"name": "French-speaking"},
        "note": "The segment has Belgium since last week.",
    }),
    Example("POST /proposals/{id}/approve", "Approve the proposal as it was read", {
        "version": "1fcfc267c059ca406fac",
    }, 1),
    Example("POST /proposals", "Propose a wider segment", {
        "kind": "change_segment", "subject_id": 1, "changes": {"filters": []},
    }),
    Example("POST /proposals/{id}/return", "Return the proposal with a note", {"note": "Keep the countries."}, 2),
    Example("POST /segments/count", "Count contacts without saving the filters", {"filters": IN_FRANCE}),
    Example("POST /lists", "Create a list from a segment", {"name": "France", "segment_id": 1}),
    Example("POST /contacts", "Add a contact with consent", {
        "email": "ann@example.com", "first_name": "Ann", "country_code": "FR", "language": "fr", "list_ids": [1],
        "consent_source": "Checkout: \"Send me news\"", "data": {"tags": ["vip"], "birthday": "1990-04-12"},
    }),
    Example("POST /contacts", "Add a contact with a phone number", {
        "phone": "+14155550123", "first_name": "Bo", "data": {"tags": ["sms"]},
    }),
    Example("PATCH /contacts/{id}", "Change some fields", {
        "last_name": "Martin", "data_merge": {"shoe_size": 38, "birthday": None},
    }, 1),
    Example("POST /imports", "Import a file", {
        "file": "email,first_name\nemil@example.com,Emil\n", "resource": "contacts",
        "options": '{"list_ids": [1], "consent_source": "Stand at the market"}',
    }),
    Example("POST /events", "Record an order once", {
        "event": "order_paid", "contact_id": 1, "amount": 59.9, "resource_uid": "order:4711",
        "data": {"items": ["tartelette"]}, "idempotency_key": "order-4711-paid",
    }),
    Example("POST /events", "Record an event of a new contact", {
        "event": "cart_add", "contact_email": "cleo@example.com", "create_contact": True,
    }),
    Example("POST /events/batch", "Record several events", {"events": [
        {"event": "product_view", "contact_id": 1, "resource_name": "Tartelette"},
        {"event": "checkout", "contact_email": "cleo@example.com"},
    ]}),
    Example("POST /contacts/{id}/merge", "Merge two contacts", {"contact_id": 3}, 1),
    Example("POST /lists/{id}/contacts/bulk", "Add and remove contacts", {"add": ["ann@example.com", 2],
                                                                            "remove": []}, 1),
    Example("POST /suppressions", "Suppress an address", {
        "address": "gone@example.com", "note": "asked by phone",
    }),
    Example("DELETE /suppressions/{id}", "Lift a suppression", {"reason": "asked by mistake"}, 1),
    Example("POST /forms", "Create a sign-up form", {
        "name": "Footer of the shop", "list_ids": [1], "origins": ["https://example.com"],
        "fields": [
            "email", {"name": "first_name", "label": "First name"},
            {"name": "data.coffee", "label": "How do you drink coffee?", "type": "radio",
             "options": ["Filter", "Espresso"]},
            {"name": "data.source", "type": "hidden", "value": "shop", "query_parameter": "utm_source"},
        ],
        "consent_text": "Yes, send me the weekly newsletter.",
    }),
    Example("PATCH /forms/{id}", "Fix the language", {"language": "fr"}, 1),
    Example("PATCH /forms/{id}", "Set a redirect", {"redirect_url": "https://example.com/thanks"}, 1),
    Example("POST /v1/public/forms/{public_key}", "Sign up", {
        "email": "dora@example.com", "first_name": "Dora", "data": {"coffee": "Filter"},
    }),
    Example("POST /templates", "Create a template with a design", {
        "name": "Spring", "subject": "Our spring menu", "preheader": "Strawberries are here", "design": DESIGN,
    }),
    Example("PATCH /templates/{id}", "Change the subject", {"subject": "The spring menu is out"}, 1),
    Example("PUT /templates/{id}/translations/{language}", "Translate the subject into German", {
        "texts": {"subject": "Die Frühlingskarte ist da"},
    }, 1),
    Example("POST /templates/preview", "Render a design for a contact", {"document": DESIGN, "contact_id": 1}),
    Example("POST /templates/{id}/send_test", "Send a test email", {"email": "owner@example.com"}, 1),
    Example("POST /flows", "Create a welcome flow for a list", {
        "name": "Welcome", "trigger": {"event": "list_add", "contact_list_id": 1}, "steps": STEPS,
    }),
    Example("POST /flows/{id}/reject", "Reject a flow with a reason", {"note": "The second mail is too soon."}, 1),
    Example("POST /flows/{id}/approve", "Approve a flow as it was read", {"updated_at": _READ_AT}, 1),
    Example("PATCH /flows/{id}", "Wait a day longer, end the run with an order, and test two branches", {
        "goal": "order_paid",
        "steps": [{**STEPS[0], "id": 1}, {"id": 2, "duration": 172_800}, {**STEPS[2], "id": 3}, _TEST],
    }, 1),
    Example("POST /flows/{id}/simulate", "Simulate a flow for a contact", {
        "contact_id": 1, "events": [{"event": "email_clicked", "after": 3_600}],
    }, 1),
    Example("POST /flows/{id}/replay", "Replay a flow against the last 30 days", {"days": 30}, 1),
    Example("POST /flows/{id}/simulate_all", "Simulate a flow for all who joined in the last 30 days", {"days": 30}, 1),
    Example("POST /flows/{id}/activate", "Activate a flow", {}, 1),
    Example("POST /flows/{id}/winner", "Choose the branch that all contacts take from now on", {
        "step": 8, "branch": "b10",
    }, 1),
    Example("POST /flows/{id}/enroll", "Enroll existing contacts", {"contact_ids": [1]}, 1),
    Example("POST /flows/{id}/runs/move_on", "Skip the wait in a step", {"step": 2}, 1),
    Example("POST /flows/{id}/runs/take_out", "Remove a contact from a flow", {"run_ids": [1]}, 1),
    Example("POST /flows/{id}/archive", "Archive a flow", {"take_out": True}, 1),
    Example("POST /campaigns", "Create a draft", {"name": "Spring menu"}),
    Example("PATCH /campaigns/{id}", "Set audience and content", {
        "trigger_attributes": {"contact_list_id": 1},
        "template_attributes": {"subject": "The spring menu is out", "design": DESIGN},
    }, 1),
    Example("POST /campaigns/{id}/duplicate", "Duplicate a campaign", {"name": "Summer menu"}, 1),
    Example("POST /campaigns/{id}/reject", "Reject a campaign with a reason", {"note": "A word is missing."}, 1),
    Example("POST /campaigns/{id}/approve", "Approve a campaign as it was read", {"updated_at": _READ_AT}, 1),
    Example("POST /campaigns/{id}/send", "Send a campaign, with 15 seconds to undo", {
        "template_attributes": {"subject": "Our spring menu is out"}, "hold_seconds": 15,
    }, 1),
    Example("POST /campaigns", "Create an SMS campaign with audience and content", {
        "name": "Open on Sunday", "channel": "sms", "trigger_attributes": {"contact_list_id": 1},
        "template_attributes": {"body": "We are open on Sunday!"},
    }),
    Example("POST /campaigns", "Create a campaign with an A/B test of subjects", {
        "name": "Summer menu", "trigger_attributes": {"contact_list_id": 1},
        "template_attributes": {"subject": "The summer menu is out", "design": DESIGN},
        "experiment": {"variants": [{}, {"subject": "Strawberries!"}], "test_share": 0.2, "decide_after_minutes": 240},
    }),
    Example("POST /campaigns/{id}/send", "Send the campaign with the test", {}, 4),
    Example("POST /campaigns/{id}/experiment/winner", "Choose the winner before the end of the test", {
        "variant": 2,
    }, 4),
    Example("POST /messages", "Send a receipt", {
        "to": "ann@example.com", "subject": "Your order {{ data.number }}", "data": {"number": "4711"},
        "body": '<p>Thank you! <a href="https://example.com/orders/4711">See your order</a></p>',
        "tags": {"kind": "receipt"},
    }),
    Example("POST /messages", "Send an invoice with a copy to the bookkeeper", {
        "to": "ann@example.com", "cc": ["books@example.com"], "bcc": ["archive@example.com"],
        "from": "Petit Four <hello@example.com>", "subject": "Invoice {{ data.number }}", "data": {"number": "4711"},
        "html": "<p>Please find invoice {{ data.number }} attached.</p>", "text": "Please find invoice 4711 attached.",
        "headers": {"X-Invoice": "4711"},
        "attachments": [{"filename": "Invoice 4711.txt", "content": "VG90YWw6IDEyIEVVUgo="}],
    }),
    Example("POST /messages/batch", "Send two messages", {"messages": [
        {"to": "ann@example.com", "subject": "Your order is on its way", "body": "<p>It arrives tomorrow.</p>"},
        {"to": "bo@example.com", "subject": "Your order is ready", "body": "<p>You can collect it today.</p>"},
    ]}),
    Example("POST /messages", "Send an SMS", {
        "channel": "sms", "to": "+14155550123", "body": "Your table is ready.",
    }),
    Example("POST /capture/{id}/simulate", "Simulate a reply to a captured SMS", {
        "action": "reply", "text": "Thanks!",
    }),
    Example("POST /incoming/{id}/seen", "Mark a reply as read", {"opt_out": False}, 1),
    Example("POST /webhooks", "Subscribe to orders and opt-outs", {
        "url": "https://example.com/hooks/campanero", "events": ["order_paid", "opt_out"], "enabled": True,
    }),
    Example("PATCH /webhooks/{id}", "Add bounces", {"events": ["order_paid", "opt_out", "email_bounced"]}, 1),
    Example("POST /webhooks/{id}/test", "Send a sample event", {"event": "order_paid"}, 1),
    Example("POST /webhooks/{id}/replay_failed", "Repeat failed deliveries", {"since": "2026-11-20T00:00:00Z"}, 1),
)  # fmt: skip


# Not in the story, because only a browser can add the passkey that they need.
OF_PASSKEYS: tuple[Example, ...] = (
    Example("PATCH /user/passkeys/{id}", "Rename a passkey", {"name": "Blue security key"}, 1),
    Example("DELETE /user/passkeys/{id}", "Remove a lost passkey", {"current_password": "correct horse battery"}, 1),
)


def find_examples(operation: str) -> dict[str, Any]:
    """Return the `examples` of an operation's request body by number, empty if there are none."""
    examples = [example for example in (*STORY, *OF_PASSKEYS) if example.operation == operation]
    return {
        f"{number}": {"summary": example.summary, "value": example.body} for number, example in enumerate(examples, 1)
    }


# The values in the examples of responses, by property name. VALUES_BY_SCHEMA has those of single schemas, which take
# precedence.
