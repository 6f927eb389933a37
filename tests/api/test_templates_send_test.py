"""Tests of a template: to anyone, as any contact, marked as tests and counted nowhere (docs/decisions.md#11)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import EMAIL, Server
from tests.kit.smtp import SmtpServer

SECTION = {"type": "text", "props": {"content": "<p>Hi {{ contact.first_name | default: 'you' }}, {{ data.code }}</p>"}}


@pytest.fixture(scope="module")
def template(api: Client) -> int:
    """A template with a design."""
    body = {"name": "T", "subject": "For {{ contact.first_name | default: 'you' }}", "design": {"sections": [SECTION]},
            "preheader": "Preview {{ data.code }}", "reply_to": "back@example.org"}  # fmt: skip
    return int(api.post("/templates", body).expect(201)["id"])


@pytest.fixture(scope="module")
def person(api: Client) -> int:
    """A contact with a name."""
    return int(api.post("/contacts", {"email": "zoe@example.org", "first_name": "Zoë"}).expect(201)["id"])


def sent(api: Client, template: int, **body: Any) -> list[dict[str, Any]]:
    """Send tests and return the messages they became, once they are in the inbox."""
    answer = api.post(f"/templates/{template}/send_test", body).expect(200)
    assert answer["sent"] == len(answer["results"])
    assert all((one["success"], one["error"]) == (True, None) for one in answer["results"])
    return [
        api.wait(f"/messages/{one['message_id']}", lambda row: row["status"] == "sent") for one in answer["results"]
    ]


def test_without_a_body_it_goes_to_the_owner(api: Client, template: int) -> None:
    """Marked in its subject and in its record; of no campaign and nobody's."""
    answer = api.request("POST", f"/v1/my/templates/{template}/send_test", b"", {"Authorization": f"Bearer {api.key}"})
    (result,) = answer.expect(200)["results"]
    found = api.wait(f"/messages/{result['message_id']}", lambda row: row["status"] == "sent")

    assert (result["email"], found["to"], found["subject"]) == (EMAIL, EMAIL, "[Test] For you")
    assert (found["test"], found["source_type"], found["template_id"]) == (True, "test", template)
    assert (found["campaign_id"], found["contact_id"], found["provider"]) == (None, None, "capture")
    assert found["reply_to"] == "back@example.org"


def test_it_goes_to_one_or_to_some_addresses(api: Client, template: int, person: int) -> None:
    """Each gets a message of their own with the data given; who is known gets their own values."""
    (one,) = sent(api, template, email="a@example.org", data={"code": "<QED>"})
    both = sent(api, template, emails=["a@example.org", "zoe@example.org", "A@example.org"])

    assert one["to"] == "a@example.org" and "Hi you, <QED>" in one["text"] and "&lt;QED&gt;" in one["html"]
    assert [row["to"] for row in both] == ["a@example.org", "zoe@example.org"]
    assert [row["subject"] for row in both] == ["[Test] For you", "[Test] For Zoë"]


def test_it_shows_a_contacts_values(api: Client, template: int, person: int) -> None:
    """A contact alone gets it; with an address it goes there and still shows the contact's values."""
    (theirs,) = sent(api, template, contact_id=person)
    (ours,) = sent(api, template, contact_id=person, email="me@example.org")

    assert (theirs["to"], theirs["subject"]) == ("zoe@example.org", "[Test] For Zoë")
    assert (ours["to"], ours["subject"]) == ("me@example.org", "[Test] For Zoë")
    assert "Hi Zoë" in ours["html"]


def test_conditions_are_asked_for_the_contact(api: Client, person: int) -> None:
    """What is for others is not in the test that shows a contact's values."""
    for_ben = {"props": {"content": "<p>For Ben</p>",
                         "show_if": [{"name": "contact_first_name", "predicate": "eq", "value": "Ben"}]}}  # fmt: skip
    body = {"subject": "s", "design": {"sections": [SECTION, for_ben]}}
    made = api.post("/templates", body).expect(201)["id"]

    assert "For Ben" not in sent(api, made, contact_id=person)[0]["html"]
    assert "For Ben" in sent(api, made, email="nobody@example.org")[0]["html"]


def test_it_looks_as_the_mail_will(api: Client, template: int) -> None:
    """Where the template has no footer, address and unsubscribe link are added; mail programs are told nothing."""
    (found,) = sent(api, template, email="look@example.org")
    caught = next(one for one in api.all("/messages", to="look@example.org"))

    assert "/u/" in found["text"] and "Unsubscribe" in found["html"]
    assert "Preview " in found["html"]
    assert found["headers"] == {} and caught["transactional"] is True


def test_no_figure_counts_it(api: Client, template: int, person: int) -> None:
    """Not the contact's, not the channel's, not the account's; its events say that they are tests."""
    before = api.get("/account").expect(200)["usage"]["email_sent"]
    (found,) = sent(api, template, contact_id=person)
    contact = api.get(f"/contacts/{person}").expect(200)

    assert api.get("/account").expect(200)["usage"]["email_sent"] == before
    assert [one["sent_count"] for one in contact["channels"]] == [0]
    assert contact["last_interacted_at"] is None
    events = api.get("/events", resource_uid=f"message:{found['id']}").expect(200)
    assert [(one["event"], one["test"], one["contact_id"]) for one in events] == [("email_sent", True, None)]
    assert found["id"] not in [one["id"] for one in api.all("/messages", contact_id=person)]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"email": "nobody"}, {"email"}),
        ({"email": ""}, {"email"}),
        ({"emails": ["a@example.org", "x", "y@"]}, {"emails[1]", "emails[2]"}),
        ({"emails": [f"p{n}@example.org" for n in range(6)]}, {"emails"}),
        ({"email": "six@example.org", "emails": [f"p{n}@example.org" for n in range(5)]}, {"emails"}),
        ({"contact_id": 10**9}, {"contact_id"}),
        ({"contact_id": "x", "data": []}, {"contact_id", "data"}),
        ({"email": "a@example.org\r\nBcc: b@example.org"}, {"email"}),
    ],
)
def test_faults_of_a_test(body: dict[str, Any], fields: set[str], api: Client, template: int) -> None:
    """All at once, and nobody gets anything."""
    before = api.get("/messages").headers["X-Total-Count"]

    assert set(api.post(f"/templates/{template}/send_test", body).expect(422)["validation_errors"]) == fields
    assert api.get("/messages").headers["X-Total-Count"] == before


def test_a_contact_without_an_address_gets_none(api: Client, template: int) -> None:
    """It is said at the field that names the contact."""
    silent = api.post("/contacts", {"first_name": "No address"}).expect(201)["id"]

    fault = api.post(f"/templates/{template}/send_test", {"contact_id": silent}).expect(422)

    assert set(fault["validation_errors"]) == {"contact_id"}


def test_nobody_needs_to_agree_but_the_suppressed_get_none(api: Client, template: int) -> None:
    """Who unsubscribed may be sent a test; to a suppressed address the row is kept as skipped, and says why."""
    api.post("/contacts", {"email": "out@example.org", "opt_in": False}).expect(201)
    api.post("/suppressions", {"address": "never@example.org", "reason": "manual"}).expect(201)
    answer = api.post(f"/templates/{template}/send_test", {"emails": ["out@example.org", "never@example.org"]})
    good, bad = answer.expect(200)["results"]

    assert answer.json["sent"] == 1 and good["success"]
    assert (bad["email"], bad["success"], bad["error"]) == ("never@example.org", False, "suppressed_manual")
    row = api.get(f"/messages/{bad['message_id']}").expect(200)
    assert (row["status"], row["skip_reason"], row["test"]) == ("skipped", "suppressed_manual", True)


def test_a_template_that_says_nothing_or_cannot_be_rendered_is_refused(api: Client) -> None:
    """A draft without a subject can be looked at; one without content cannot."""
    empty = api.post("/templates", {"subject": "s"}).expect(201)["id"]
    bare = api.post("/templates", {"name": "Bare", "body": "<p>x</p>"}).expect(201)["id"]

    assert api.post(f"/templates/{empty}/send_test").expect(422)["reason"] == "content_required"
    assert sent(api, bare)[0]["subject"] == "[Test] Bare"


@pytest.fixture
def out(fresh_server: FreshServer, smtp_server: SmtpServer) -> Iterator[Server]:
    """A server whose mail leaves the machine."""
    yield fresh_server(relay=smtp_server.port)


def test_it_goes_by_the_accounts_own_way_out(out: Server, smtp_server: SmtpServer) -> None:
    """A test of a live key leaves like any message; one of a test key goes to the inbox; both are tests."""
    live, tried = out.client(), out.client(out.new_key("try", "--test"))
    body = {"subject": "Way", "from_email": "us@example.net", "design": {"sections": [SECTION]}}
    made = live.post("/templates", body).expect(201)["id"]
    (left,) = sent(live, made, email="far@example.org")
    (stayed,) = sent(tried, made, email="near@example.org")

    assert (left["provider"], stayed["provider"]) == ("relay", "capture")
    assert left["test"] and stayed["test"]
    (mail,) = smtp_server.messages
    assert (mail.to, mail.subject, mail.header("List-Unsubscribe")) == ("far@example.org", "[Test] Way", None)


def test_strangers_get_few(out: Server) -> None:
    """Twenty tests an hour go to addresses that nobody here knows; to contacts, testers and the team they go on."""
    api = out.client()
    template = api.post("/templates", {"name": "B", "subject": "Bomb", "body": "<p>x</p>"}).expect(201)["id"]
    path = f"/templates/{template}/send_test"
    for start in range(0, 20, 5):
        api.post(path, {"emails": [f"victim{start + more}@example.org" for more in range(5)]}).expect(200)
    refused = api.post(path, {"email": "victim21@example.org"})
    assert refused.status == 429 and 3500 < int(refused.headers["Retry-After"]) <= 3600
    assert refused.json["code"] == "rate_limited"
    api.post("/contacts", {"email": "known@example.org"}).expect(201)
    assert api.patch("/account", {"test_email_recipients": ["tester@example.org"]}).status == 200
    for body in ({"email": "Known@Example.org"}, {"email": EMAIL}, {"email": "tester@example.org"}):
        assert api.post(path, body).expect(200)["sent"] == 1
    (result,) = api.post(path, {}).expect(200)["results"]
    assert result["email"] == "tester@example.org"
