"""Suppressions over the API (docs/decisions.md#5 and #9)."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.smtp import SmtpServer


def suppress(api: Client, address: str, **body: Any) -> Any:
    """Suppress an address and return the record."""
    return api.post("/suppressions", {"address": address, **body}).expect(201)


def first_channel(api: Client, contact: Any) -> Any:
    """Return a contact's first channel as it is now."""
    return api.get(f"/contacts/{contact['id']}").expect(200)["channels"][0]


def test_an_address_is_suppressed_at_once(api: Client) -> None:
    """The record has all fields, the channel has the reason, and a message to the address is rejected."""
    contact = api.post("/contacts", {"email": "sup@example.org"}).expect(201)
    created = suppress(api, "SUP@Example.org", note="asked by phone", diagnostic="ticket 7")

    assert (created["channel"], created["address"], created["reason"], created["source"]) == (
        "email",
        "SUP@example.org",
        "manual",
        "api",
    )
    assert (created["note"], created["diagnostic"], created["expires_at"]) == ("asked by phone", "ticket 7", None)
    now = api.get(f"/contacts/{contact['id']}").expect(200)
    assert (now["sendable_email"], now["subscribed_email"], now["verification_status"]) == (False, True, "suppressed")
    assert now["channels"][0]["suppression_reason"] == "manual"
    error = api.post("/messages", {"to": "sup@example.org", "subject": "s", "body": "b"}).expect(422)
    assert (error["reason"], error["skip_reason"]) == ("recipient_suppressed", "suppressed_manual")


def test_suppressions_belong_to_addresses(api: Client) -> None:
    """A contact created later is suppressed, and deleting the contact keeps the suppression."""
    suppress(api, "later@example.org", reason="hard_bounce")
    contact = api.post("/contacts", {"email": "later@example.org", "opt_in": True}).expect(201)
    assert contact["kept_opt_out"] == ["later@example.org"]
    assert first_channel(api, contact)["suppression_reason"] == "hard_bounce"
    api.delete(f"/contacts/{contact['id']}").expect(200)
    again = api.post("/contacts", {"email": "later@example.org"}).expect(201)
    assert first_channel(api, again)["suppression_reason"] == "hard_bounce"


def test_the_most_severe_reason_is_shown(api: Client) -> None:
    """If an address has several suppressions, the channel shows the most severe one that is left."""
    contact = api.post("/contacts", {"email": "grave@example.org"}).expect(201)
    suppress(api, "grave@example.org", reason="soft_bounce")
    hard = suppress(api, "grave@example.org", reason="hard_bounce")
    suppress(api, "grave@example.org")
    assert first_channel(api, contact)["suppression_reason"] == "hard_bounce"
    assert api.delete(f"/suppressions/{hard['id']}", reason="new mailbox").expect(200)["id"] == hard["id"]
    assert first_channel(api, contact)["suppression_reason"] == "manual"
    assert api.delete(f"/suppressions/{hard['id']}", reason="again").status == 404


def test_a_repeated_suppression_updates_the_record(api: Client) -> None:
    """The same address and reason is a 200; given fields are replaced."""
    first = suppress(api, "twice@example.org", note="one")
    again = api.post("/suppressions", {"address": "TWICE@example.org", "diagnostic": "two"}).expect(200)
    assert (again["id"], again["note"], again["diagnostic"]) == (first["id"], "one", "two")


@pytest.mark.parametrize(("reason", "subscribed"), [("complaint", False), ("manual", True), ("hard_bounce", True)])
@pytest.mark.parametrize("before", [True, False], ids=["contact before", "contact after"])
def test_lift_a_suppression(reason: str, subscribed: bool, before: bool, api: Client) -> None:
    """Lifting removes the suppression; after a complaint the opt-out stays."""
    address = f"lift-{reason.replace('_', '-')}-{before}@example.org"
    contact = api.post("/contacts", {"email": address}).expect(201) if before else None
    created = suppress(api, address, reason=reason)
    api.delete(f"/suppressions/{created['id']}", {"reason": "they wrote to us"}).expect(200)
    contact = contact or api.post("/contacts", {"email": address}).expect(201)
    now = first_channel(api, contact)
    assert (now["suppression_reason"], now["subscribed"]) == (None, subscribed)
    assert now["opted_out_by"] == (None if subscribed else "recipient")


def test_lifting_needs_a_reason_and_leaves_evidence(api: Client) -> None:
    """Without a reason a suppression cannot be lifted; the reason is stored in the consent evidence."""
    contact = api.post("/contacts", {"email": "why@example.org"}).expect(201)
    created = suppress(api, "why@example.org")
    for error in (
        api.delete(f"/suppressions/{created['id']}"),
        api.delete(f"/suppressions/{created['id']}", reason=" "),
    ):
        assert error.expect(422)["validation_errors"] == {"reason": ["can't be blank"]}
    api.delete(f"/suppressions/{created['id']}", reason="moved house").expect(200)
    lifted, suppressed, opted_in = api.get(f"/contacts/{contact['id']}/consents").expect(200)
    assert (lifted["act"], lifted["data"]) == ("lifted", {"reason": "manual", "note": "moved house"})
    assert (suppressed["act"], suppressed["data"], suppressed["by"]) == ("suppressed", {"reason": "manual"}, "operator")
    assert (opted_in["act"], opted_in["address"]) == ("opt_in", "why@example.org")


def test_filter_suppressions(api: Client) -> None:
    """Each filter returns the matching records; an address is found in any spelling."""
    created = suppress(api, "filter-me@example.org", reason="soft_bounce")
    phone = suppress(api, "+49 151 1234568", channel="phone")
    assert (phone["channel"], phone["address"]) == ("sms", "+491511234568")
    assert [row["id"] for row in api.get("/suppressions", address="FILTER-me@example.org").json] == [created["id"]]
    assert [row["id"] for row in api.get("/suppressions", channel="sms").json] == [phone["id"]]
    assert created["id"] in [row["id"] for row in api.get("/suppressions", reason="soft_bounce").json]
    assert phone["id"] not in [row["id"] for row in api.get("/suppressions", reason="soft_bounce").json]
    assert [row["id"] for row in api.get("/suppressions", search="LTER-me@Exam").json] == [created["id"]]
    assert [row["id"] for row in api.get("/suppressions", search="+49 151 1234568").json] == [phone["id"]]
    assert api.get("/suppressions", search="%").json == []
    assert api.get("/suppressions", created_after="2100-01-01").json == []
    newest = api.get("/suppressions", created_before="2100-01-01", limit=1)
    assert [row["id"] for row in newest.json] == [phone["id"]] and int(newest.headers["X-Total-Count"]) >= 2
    assert api.get("/suppressions", reason="nonsense").status == 422
    assert api.get("/suppressions", wrong="1").status == 422


def test_invalid_suppressions_are_rejected(api: Client) -> None:
    """All errors are reported at once; internal reasons cannot be written."""
    past = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    error = api.post("/suppressions", {"address": "nobody", "reason": "hard_bounce", "expires_at": past}).expect(422)
    assert set(error["validation_errors"]) == {"address", "expires_at"}
    assert set(
        api.post("/suppressions", {"address": "a@example.org", "expires_at": past}).expect(422)["validation_errors"]
    ) == {"expires_at"}
    for reason in ("erased", "stop_keyword", "other"):
        assert api.post("/suppressions", {"address": "a@example.org", "reason": reason}).status == 422
    assert api.post("/suppressions", {}).expect(422)["validation_errors"] == {"address": ["can't be blank"]}


def test_a_manual_suppression_expires(api: Client) -> None:
    """After `expires_at` the suppression is gone from the list and the channel."""
    contact = api.post("/contacts", {"email": "soon@example.org"}).expect(201)
    soon = (datetime.now(UTC) + timedelta(seconds=1.5)).isoformat()
    created = suppress(api, "soon@example.org", expires_at=soon)
    assert first_channel(api, contact)["suppression_reason"] == "manual"
    time.sleep(1.6)
    assert first_channel(api, contact)["suppression_reason"] is None
    assert api.get("/suppressions", address="soon@example.org").json == []
    assert api.delete(f"/suppressions/{created['id']}", reason="x").status == 404
    api.wait(f"/contacts/{contact['id']}/consents", lambda rows: rows[0]["act"] == "lifted")


def test_suppressions_of_another_account(fresh_server: FreshServer) -> None:
    """They are unknown and have no effect in this account (T09)."""
    server = fresh_server()
    mine = server.client()
    other_account = server.cli("account", "add", "Other").stdout.strip()
    other = server.client(server.new_key("other", "--account", other_account))
    created = suppress(mine, "apart@example.org")
    assert other.get("/suppressions").json == []
    assert other.delete(f"/suppressions/{created['id']}", reason="x").status == 404
    contact = other.post("/contacts", {"email": "apart@example.org"}).expect(201)
    assert contact["channels"][0]["suppression_reason"] is None
    assert [row["id"] for row in mine.get("/suppressions").json] == [created["id"]]


def test_a_suppression_during_a_send_is_respected(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A queued message to an address that is suppressed during the campaign is skipped (P4)."""
    gate = smtp_server.rules.hold("body", times=1)
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__CONNECTIONS": "1"})
    api = server.client()
    people = api.post("/lists", {"name": "All"}).expect(201)["id"]
    for number in range(30):
        api.post("/contacts", {"email": f"p{number}@example.org", "list_ids": [people]}).expect(201)
    campaign = api.post("/campaigns", {"name": "C"}).expect(201)["id"]
    order = {"trigger_attributes": {"contact_list_id": people}, "template_attributes": {"subject": "s", "body": "b"}}
    api.post(f"/campaigns/{campaign}/send", order).expect(200)
    gate.wait_reached()
    suppress(api, "p29@example.org")
    api.post("/suppressions", {"address": "p28@example.org", "reason": "complaint"}).expect(201)
    gate.release()
    api.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed")
    reasons = {row["to"]: row["skip_reason"] for row in api.get("/messages", status="skipped").json}
    assert reasons == {"p29@example.org": "suppressed_manual", "p28@example.org": "suppressed_complaint"}
    assert {message.to for message in smtp_server.messages} == {f"p{number}@example.org" for number in range(28)}
