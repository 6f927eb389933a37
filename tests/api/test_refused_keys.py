"""Unknown keys that would change content, recipients or time of a send are rejected (docs/decisions.md#1)."""

from typing import Any

import pytest

from tests.kit.client import Client

CONTENT = {"subject": "Sale", "body": "<p>Hi</p>"}
MESSAGE = {"to": "one@example.org", **CONTENT}
TOMORROW = "2099-01-01T09:00:00Z"


@pytest.fixture(scope="module")
def campaign(api: Client) -> str:
    """Return the path of a campaign that is ready to be sent."""
    contact_list = api.post("/lists", {"name": "All"}).expect(201)["id"]
    api.post("/contacts", {"email": "a@example.org", "list_ids": [contact_list]}).expect(201)
    trigger = {"contact_list_id": contact_list}
    response = api.post("/campaigns", {"name": "Sale", "template_attributes": CONTENT, "trigger_attributes": trigger})
    return f"/campaigns/{response.expect(201)['id']}"


MESSAGE_KEYS = [
    ("html_body", "<p>other</p>", "`html`"), ("sender", "shop@example.org", "`from`"),
    ("recipients", ["b@example.org"], "`cc`"), ("files", [{"name": "a.pdf"}], "`attachments`"),
    ("scheduled_at", TOMORROW, "send_at"),
    ("sendAt", TOMORROW, "send_at"), ("template", 1, "template_id"), ("variables", {"a": 1}, "data"),
    ("replyTo", "b@example.org", "reply_to"), ("from_mail", "b@example.org", "from_email"),
    ("dry_run", True, "test key"), ("design", {"sections": []}, "template"),
]  # fmt: skip
SEND_KEYS = [
    ("send_at", TOMORROW, "scheduled_at"), ("schedule_at", TOMORROW, "scheduled_at"),
    ("scheduledAt", TOMORROW, "scheduled_at"), ("sheduled_at", TOMORROW, "scheduled_at"),
    ("hold_second", 60, "hold_seconds"), ("holdSeconds", 60, "hold_seconds"), ("hold", 60, "hold_seconds"),
    ("subject", "Other", "template_attributes.subject"), ("body", "Other", "template_attributes.body"),
    ("html", "Other", "template_attributes.body"), ("from_email", "b@example.org", "template_attributes.from_email"),
    ("from", "b@example.org", "template_attributes.from_email"), ("template_id", 1, "template_attributes"),
    ("list_ids", [1], "trigger_attributes.data.contact_list_ids"), ("segment_ids", [1], "segment"),
    ("segment_idd", 1, "trigger_attributes.segment_id"), ("contact_lists_id", 1, "trigger_attributes"),
    ("exclude_list_ids", [1], "exclude_contact_list_ids"), ("contact_ids", [1], "list or a segment"),
    ("to", ["b@example.org"], "list or a segment"), ("test", True, "test key"), ("dry_run", True, "preflight"),
    ("tracking", False, "PATCH"), ("channel", "sms", "PATCH"), ("transactional", True, "/messages"),
    ("cc", "b@example.org", "recipient"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "hint"), MESSAGE_KEYS, ids=[key for key, _, _ in MESSAGE_KEYS])
def test_rejected_keys_of_a_message(api: Client, key: str, value: Any, hint: str) -> None:
    """The error is at the key with a hint on the right one, and no message is created."""
    before = api.get("/messages").headers["X-Total-Count"]
    error = api.post("/messages", MESSAGE | {key: value}).expect(422)

    assert (set(error["validation_errors"]), hint in error["validation_errors"][key][0]) == ({key}, True), error
    assert api.get("/messages").headers["X-Total-Count"] == before


@pytest.mark.parametrize(("key", "value", "hint"), SEND_KEYS, ids=[key for key, _, _ in SEND_KEYS])
def test_rejected_keys_of_a_send(api: Client, campaign: str, key: str, value: Any, hint: str) -> None:
    """The error is at the key with a hint on the right one, and nothing is sent."""
    error = api.post(f"{campaign}/send", {key: value}).expect(422)

    assert (set(error["validation_errors"]), hint in error["validation_errors"][key][0]) == ({key}, True), error
    assert api.get(campaign).expect(200)["status"] == "draft"


@pytest.mark.parametrize(
    ("method", "path", "body", "at"),
    [
        ("POST", "/campaigns", {"name": "x", "send_at": TOMORROW}, "send_at"),
        ("POST", "/campaigns", {"name": "x", "subject": "Other"}, "subject"),
        ("POST", "/campaigns", {"name": "x", "transactional": True}, "transactional"),
        ("POST", "/campaigns", {"name": "x", "list_ids": [1]}, "list_ids"),
        ("POST", "/campaigns", {"name": "x", "template_attributes": {"html": "x"}}, "template_attributes.html"),
        ("POST", "/campaigns", {"name": "x", "trigger_attributes": {"list_id": 1}}, "trigger_attributes.list_id"),
        ("PATCH", "{campaign}", {"status": "active", "hold_seconds": 60}, "hold_seconds"),
        ("PATCH", "{campaign}", {"status": "active", "test": True}, "test"),
        ("PATCH", "{campaign}", {"schedule_at": TOMORROW}, "schedule_at"),
        ("PATCH", "{campaign}", {"template_attributes": {"fromEmail": "b@example.org"}},
         "template_attributes.fromEmail"),
        ("POST", "{campaign}/send", {"trigger_attributes": {"data": {"exclude_list_ids": [1]}}},
         "trigger_attributes.data.exclude_list_ids"),
        ("POST", "{campaign}/send", {"trigger_attributes": {"data": {"exclude_contact_lists_ids": [1]}}},
         "trigger_attributes.data.exclude_contact_lists_ids"),
        ("POST", "/templates", {"subject": "s", "html": "<p>x</p>"}, "html"),
        ("POST", "{template}/send_test", {"to": "b@example.org"}, "to"),
        ("POST", "{template}/send_test", {"recipients": ["b@example.org"]}, "recipients"),
        ("POST", "{template}/send_test", {"email": "b@example.org", "subject": "Other"}, "subject"),
        ("POST", "{template}/send_test", {"email": "b@example.org", "send_at": TOMORROW}, "send_at"),
    ],
)  # fmt: skip
def test_rejected_keys_of_other_requests(
    api: Client, campaign: str, method: str, path: str, body: dict[str, Any], at: str
) -> None:
    """Creating and changing campaigns and templates, and test sends, reject such keys too."""
    template = f"/templates/{api.get(campaign).expect(200)['template']['id']}"
    before = api.get("/messages").headers["X-Total-Count"]
    error = api.send(method, path.format(campaign=campaign, template=template), body).expect(422)

    assert set(error["validation_errors"]) == {at}, error
    assert api.get(campaign).expect(200)["status"] == "draft"
    assert api.get("/messages").headers["X-Total-Count"] == before


def test_rejected_keys_are_reported_with_other_errors(api: Client) -> None:
    """One response names the rejected key, the invalid field and the missing one."""
    error = api.post("/messages", {"html_body": "x", "cc": ["y"], "send_at": "soon", "subject": "s"}).expect(422)

    assert set(error["validation_errors"]) == {"html_body", "cc[0]", "send_at", "to", "body"}


def test_null_and_other_unknown_keys_are_ignored(api: Client, campaign: str) -> None:
    """Null, false flags and other unknown keys are ignored and listed in `X-Ignored-Fields`."""
    body = {**MESSAGE, "html": None, "html_body": None, "cc": None, "dry_run": False, "test": True, "my_reference": 7}
    sent = api.post("/messages", body)

    assert sent.status == 201
    assert set(sent.headers["X-Ignored-Fields"].split(", ")) == {"html_body", "dry_run", "test", "my_reference"}


def test_responses_can_be_sent_back(api: Client, campaign: str) -> None:
    """No key of a response is rejected in a request."""
    row = api.get(campaign).expect(200)
    assert api.patch(campaign, row).status == 200
    assert api.post("/campaigns", row).status == 201
    template = row["template"] | {"channel": "email"}
    assert api.patch(f"/templates/{template['id']}", template).status == 200
    assert api.patch(campaign, {"template_attributes": template}).status == 200


def test_a_body_with_many_keys_is_fast(api: Client) -> None:
    """Comparing unknown keys with known ones is bounded for a body of 2 MiB."""
    body = MESSAGE | {f"unknown_key_{number}": 1 for number in range(60_000)} | {"k" * 100_000: 1}

    assert api.post("/messages", body).status == 201
