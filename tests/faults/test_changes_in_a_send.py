"""Opt-outs and edits in the middle of a send (P4)."""

import re
import time
from urllib.parse import urlsplit

import pytest

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.client import Client
from tests.kit.recipients import (
    CONTENT,
    create_campaign,
    create_list,
    recipient_address,
    send_campaign,
    wait_until_completed,
)
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout

CONNECTIONS = 4
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# A message in flight at the opt-out arrives within this time or not at all
IN_FLIGHT_SECONDS = 0.5


def unsubscribe_paths(sink: SmtpServer) -> dict[str, str]:
    """Return the one-click path of each recipient, by address."""
    paths = {}
    for message in sink.messages:
        match = re.search("<(.+)>", message.header("List-Unsubscribe") or "")
        assert match
        paths[message.to] = urlsplit(match[1]).path
    return paths


def contact_ids(api: Client, list_id: int) -> dict[str, int]:
    """Return the contact ids of a list, by address."""
    return {row["channels"][0]["value"]: row["id"] for row in api.all("/contacts", list_id=list_id)}


def number_of(recipient: str) -> int:
    """Return the number within an address."""
    return int(re.sub(r"\D", "", recipient))


def skip_reasons(api: Client, path: str) -> dict[str, str]:
    """Return the skip reasons of a campaign's messages, by address."""
    rows = api.all("/messages", campaign_id=path.rpartition("/")[2], status="skipped")
    return {row["to"]: row["skip_reason"] for row in rows}


def test_opt_outs_apply_during_a_send(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """After the response to a one-click opt-out, an edit or a suppression no message to that address is started."""
    count, leaving = (20_000, 2_000) if full else (400, 80)
    api = relayed().client(validate=False, keep_alive=True)
    list_id = create_list(api, count)
    wait_until_completed(api, send_campaign(api, list_id, subject="First"), timeout=300)
    paths = unsubscribe_paths(smtp_server)
    ids = contact_ids(api, list_id)
    smtp_server.clear()
    smtp_server.rules.delay("body", 0.025)
    path = send_campaign(api, list_id, subject="Second")
    smtp_server.wait_for(20)
    opted_out_at: dict[str, float] = {}
    slowest = 0.0
    for recipient in sorted(ids, reverse=True)[:leaving]:
        started = time.time()
        match number_of(recipient) % 12:
            case 0:
                api.patch(f"/contacts/{ids[recipient]}", {"subscribed_email": False}).expect(200)
            case 1:
                api.post("/suppressions", {"address": recipient}).expect(201)
            case _:
                assert api.request("POST", paths[recipient], b"List-Unsubscribe=One-Click", FORM).status == 200
        opted_out_at[recipient] = time.time()
        slowest = max(slowest, opted_out_at[recipient] - started)
    wait_until_completed(api, path, timeout=300)
    books = reconcile(api, path, smtp_server.messages)
    late = [message for message in smtp_server.messages if message.time > opted_out_at.get(message.to, message.time)]
    skipped = skip_reasons(api, path)
    figures.books(books, left=leaving, skipped=len(skipped), after_their_answer=len(late), slowest=f"{slowest:.2f} s")

    assert all(message.time - opted_out_at[message.to] < IN_FLIGHT_SECONDS for message in late)
    assert len(late) <= CONNECTIONS and slowest < extend_timeout(1)
    assert (
        skipped.keys() | {message.to for message in smtp_server.messages if message.to in opted_out_at}
        == opted_out_at.keys()
    )
    assert len(skipped) > leaving * 0.8
    for recipient, reason in skipped.items():
        assert reason == ("suppressed_manual" if number_of(recipient) % 12 == 1 else "unsubscribed")
    assert (books.copies, books.missing) == (0, 0)


@pytest.mark.full
def test_edits_during_a_send_change_nothing(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """Content and audience are fixed when sending starts; deleted contacts and changed addresses get nothing."""
    count = 600
    smtp_server.rules.delay("body", 0.01)
    api = relayed().client(validate=False)
    list_id = create_list(api, count)
    path = create_campaign(api, list_id)
    sent = api.post(f"{path}/send").expect(200)
    smtp_server.wait_for(20)
    ids = contact_ids(api, list_id)
    template = api.patch(f"/templates/{sent['template']['id']}", {"subject": "Changed"})
    campaign = api.patch(path, {"template_attributes": {"body": "<p>Changed</p>"}})
    api.put("/brand", {"company_name": "Changed", "physical_address": "2 New Road, Bristol"}).expect(200)
    api.post("/contacts", {"email": "added@crowd.example", "list_ids": [list_id]}).expect(201)
    removed, moved, deleted = recipient_address(count - 1), recipient_address(count - 2), recipient_address(count - 3)
    api.post(f"/lists/{list_id}/remove_contacts", {"contact_ids": [ids[removed]]})
    api.patch(f"/contacts/{ids[moved]}", {"email": "moved@crowd.example"}).expect(200)
    api.delete(f"/contacts/{ids[deleted]}").expect(200)
    assert api.get(path).expect(200)["stats"]["pending"] > 0
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    arrived = {message.to for message in smtp_server.messages}
    figures.books(books, skipped=books.stats["skipped"])

    assert (template.status, campaign.status) == (422, 422)
    assert campaign.json["reason"] == "campaign_locked"
    assert arrived == {recipient_address(index) for index in range(count)} - {moved, deleted}
    assert (books.accepted, books.stats["skipped"], books.copies, books.missing) == (count - 2, 2, 0, 0)
    for message in smtp_server.messages:
        html = message.html() or ""
        assert message.subject.startswith("News for N") and "how we bake" in html
        assert "1 Mill Lane" in html and "New Road" not in html


def test_a_suppression_beats_a_slow_envelope(relayed: StartRelayed, smtp_server: SmtpServer) -> None:
    """A message that is claimed is not sent if its recipient is suppressed before the server asks for its body (P4)."""
    api = relayed(connections="1").client(validate=False)
    recipient = smtp_server.rules.hold("rcpt", times=1)
    path = send_campaign(api, create_list(api, 1))
    recipient.wait_reached()
    time.sleep(0.5)  # until the claim is on disk
    api.post("/suppressions", {"address": recipient_address(0), "reason": "manual"}).expect(201)
    recipient.release()
    wait_until_completed(api, path, timeout=30)
    assert not smtp_server.messages
    assert api.get(path).expect(200)["stats"]["skipped"] == 1


def test_leaving_a_list_beats_its_campaign(relayed: StartRelayed, smtp_server: SmtpServer) -> None:
    """Whoever leaves the list of a campaign while it is sent is skipped, unless another list of it has them (P4)."""
    api = relayed(connections="1").client(validate=False)
    list_id = create_list(api, 3)
    api.patch(f"/lists/{list_id}", {"public": True}).expect(200)
    ids = contact_ids(api, list_id)
    wait_until_completed(api, send_campaign(api, list_id, body="<a href='{{ preferences_url }}'>Choose</a>"))
    pages = {}
    for message in smtp_server.messages:
        match = re.search(r"/p/[\w-]+", message.html() or "")
        assert match
        pages[message.to] = match[0]
    other_list = api.post("/lists", {"name": "Other", "contact_ids": [ids[recipient_address(2)]]}).expect(201)["id"]
    smtp_server.clear()
    first = smtp_server.rules.hold("rcpt", times=1)
    trigger = {"contact_list_id": list_id, "data": {"contact_list_ids": [other_list]}}
    campaign = {"name": "Two lists", "trigger_attributes": trigger, "template_attributes": CONTENT}
    path = f"/campaigns/{api.post('/campaigns', campaign).expect(201)['id']}"
    api.post(f"{path}/send").expect(200)
    first.wait_reached()
    # One of the messages is claimed, and the others are queued
    api.wait("/messages", lambda rows: len(rows) == 1, campaign_id=path.rpartition("/")[2], status="sending")
    for page in pages.values():
        assert api.request("POST", page, f"act=save&list_shown={list_id}-on".encode(), FORM).status == 200
    first.release()
    wait_until_completed(api, path, timeout=30)
    assert [message.to for message in smtp_server.messages] == [recipient_address(2)]
    assert skip_reasons(api, path) == {recipient_address(index): "unsubscribed" for index in (0, 1)}
