"""Ghost sends a newsletter through the door of Mailgun with the real mailgun.js, and reads what became of it."""

import time
from typing import Any

from tests.doors.posting import find_messages, wait_for_mail
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.node_clients import run_clients
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

DOMAIN = "news.bakery.example"
MESSAGE = {
    "from": '"Bread & News" <news@bakery.example>', "replyTo": "ana@bakery.example", "subject": "Rye {{ week }}",
    "html": '<html><body><p>Hi %recipient.first_name%</p><a href="%recipient.unsubscribe_url%">Unsubscribe</a>'
    "<p>In Liquid: {{ product.title }} {% if a %}</p></body></html>",
    "plaintext": "Hi %recipient.first_name% {{ x }}", "id": "64f0c0ffee", "track_opens": True,
}  # fmt: skip


def build_recipients(*names: str) -> dict[str, Any]:
    """Return the variables that Ghost sends for members."""
    return {
        f"{name}@example.org": {
            "first_name": name.capitalize(), "unsubscribe_url": f"https://blog.example/u/?uuid={name}&key=k",
            "list_unsubscribe": f"https://blog.example/u/?uuid={name}",
        }
        for name in names
    }  # fmt: skip


def send(recipients: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the call with which Ghost sends a newsletter."""
    return {
        "client": "ghost", "call": "send", "domain": DOMAIN, "message": MESSAGE | more, "recipientData": recipients,
    }  # fmt: skip


def fetch_events(server: Server, limit: int = 300, wanted: int = 0) -> list[dict[str, Any]]:
    """Return all events of the last minutes, as Ghost reads them, once there are as many as wanted."""
    call = {"client": "ghost", "call": "events", "domain": DOMAIN, "begin": time.time() - 600, "limit": limit}
    end = time.monotonic() + 60
    while True:
        [pages] = run_clients(server.url, str(server.key), [call])
        assert all(len(page) <= limit for page in pages)
        events = [event for page in pages for event in page]
        if len(events) >= wanted:
            return events
        assert time.monotonic() < end, events
        time.sleep(0.5)


def test_newsletter_arrives_with_the_values_of_each_member(server: Server, relay: SmtpServer) -> None:
    """Names are escaped, braces are text, one-click unsubscribing leads to Ghost, and the id stands for all."""
    recipients = build_recipients("ann", "bea")
    recipients["ann@example.org"]["first_name"] = "<b>{{ first_name }}</b>"
    [response] = run_clients(server.url, str(server.key), [send(recipients)])
    mails = wait_for_mail(relay, list(recipients))
    ann, bea = mails["ann@example.org"], mails["bea@example.org"]

    assert response["status"] == 200 and response["message"] == "Queued. Thank you."
    assert response["id"].startswith("<b") and response["id"].endswith(f"@{DOMAIN}>")
    assert "Hi &lt;b&gt;{{ first_name }}&lt;/b&gt;<" in str(ann.html())
    assert "Hi Bea<" in str(bea.html()) and "{{ product.title }} {% if a %}" in str(bea.html())
    assert str(ann.text()).strip() == "Hi <b>{{ first_name }}</b> {{ x }}"
    assert 'href="https://blog.example/u/?uuid=bea&amp;key=k"' in str(bea.html())
    assert bea.header("To") == "bea@example.org"
    assert bea.header("Subject") == "Rye {{ week }}"
    assert bea.header("From") == "Bread & News <news@bakery.example>"
    assert bea.header("Reply-To") == "ana@bakery.example"
    assert bea.header("List-Unsubscribe") == "<https://blog.example/u/?uuid=bea>"
    assert bea.header("List-Unsubscribe-Post") == "List-Unsubscribe=One-Click"
    assert bea.header("Auto-Submitted") == "auto-generated"
    assert bea.header("Sender") is None
    [row] = find_messages(server, to="bea@example.org")
    assert row["tags"] == {
        "domain": DOMAIN, "tags": ["ghost-email", "bulk-email"], "variables": {"email-id": "64f0c0ffee"},
    }  # fmt: skip


def test_repeated_request_sends_nothing_twice(server: Server, relay: SmtpServer) -> None:
    """A batch that Ghost sends again because it lost the response gets the first response."""
    call = send(build_recipients("cleo"), id="once", subject="Once")
    again = send(build_recipients("cleo"), id="twice", subject="Once")
    first, second, other = run_clients(server.url, str(server.key), [call, call, again])

    assert first["id"] == second["id"] != other["id"]
    assert len(find_messages(server, to="cleo@example.org")) == 2


def test_events_report_deliveries_opens_and_refusals(server: Server, relay: SmtpServer, clock: TestClock) -> None:
    """Ghost matches events by its email id, the message id and the recipient, and reads all pages."""
    api = server.client()
    api.post("/suppressions", {"address": "gone@example.org", "reason": "hard_bounce"}).expect(201)
    api.post("/suppressions", {"address": "angry@example.org", "reason": "complaint"}).expect(201)
    recipients = build_recipients("dora", "emil", "gone", "angry")
    [sent] = run_clients(server.url, str(server.key), [send(recipients, id="events", subject="Events")])
    mails = wait_for_mail(relay, ["dora@example.org", "emil@example.org"], "Events")
    pixel = str(mails["dora@example.org"].html()).partition(f'<img src="{server.url}')[2].partition('"')[0]
    browser = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"}
    clock.advance(60)  # an open within seconds is by a scanner
    assert Client(server.url).request("GET", pixel, None, browser).status == 200
    clock.advance(5)
    wanted = {("dora", "delivered"), ("emil", "delivered"), ("gone", "failed"), ("angry", "failed"), ("dora", "opened")}
    end = time.monotonic() + 60
    while True:
        events = [event for event in fetch_events(server, limit=2) if event["user-variables"]["email-id"] == "events"]
        if len(events) >= len(wanted):
            break
        assert time.monotonic() < end, events
        time.sleep(0.5)

    assert {(event["recipient"].partition("@")[0], event["event"]) for event in events} == wanted
    assert {event["message"]["headers"]["message-id"] for event in events} == {sent["id"].strip("<>")}
    assert [event["timestamp"] for event in events] == sorted(event["timestamp"] for event in events)
    assert len({event["id"] for event in events}) == len(events)
    refused = {event["recipient"]: event for event in events if event["event"] == "failed"}
    assert refused["gone@example.org"]["severity"] == "permanent"
    assert refused["gone@example.org"]["delivery-status"]["code"] == 605
    assert refused["angry@example.org"]["delivery-status"]["code"] == 607


def test_member_who_wants_mail_again_gets_it(server: Server, relay: SmtpServer) -> None:
    """Ghost removes the bounce and the opt-out of a member; a second removal finds nothing."""
    api = server.client()
    api.post("/suppressions", {"address": "fay@example.org", "reason": "hard_bounce"}).expect(201)
    contact = api.post("/contacts", {"email": "fay@example.org", "opt_in": True}).expect(201)
    api.patch(f"/contacts/{contact['id']}", {"opt_in": False}).expect(200)
    api.delete(f"/contacts/{contact['id']}").expect(200)
    calls = [remove(kind, "fay") for kind in ("bounces", "unsubscribes")]
    back = send(build_recipients("fay"), id="back", subject="Back")
    removed = run_clients(server.url, str(server.key), [*calls, *calls, back])

    assert [result["message"] for result in removed[:2]] == [
        "Bounced address has been removed", "Unsubscribe event has been removed",
    ]  # fmt: skip
    assert [result["error"]["status"] for result in removed[2:4]] == [404, 404]
    assert wait_for_mail(relay, ["fay@example.org"], "Back")


def test_member_who_complained_stays_opted_out(server: Server) -> None:
    """Ghost can remove the complaint, but not the opt-out that a complaint leaves."""
    server.client().post("/suppressions", {"address": "cross@example.org", "reason": "complaint"}).expect(201)
    calls = [remove(kind, "cross") for kind in ("unsubscribes", "complaints", "unsubscribes")]
    calls.append(send(build_recipients("cross"), id="cross"))
    before, removed, after, _ = run_clients(server.url, str(server.key), calls)

    assert (before["error"]["status"], after["error"]["status"]) == (409, 409)
    assert removed["message"] == "Spam complaint has been removed"
    assert [row["status"] for row in find_messages(server, to="cross@example.org")] == ["skipped"]


def remove(kind: str, name: str) -> dict[str, Any]:
    """Return the call by which Ghost removes a suppression of a member."""
    return {"client": "ghost", "call": "remove", "domain": DOMAIN, "type": kind, "email": f"{name}@example.org"}


def test_ghost_shows_the_faults_of_a_newsletter(server: Server) -> None:
    """Ghost stores the status and the details of an error."""
    changes = {
        "subject can't be blank": {"subject": ""}, "from is invalid": {"from": "nobody"},
        "html can't be blank": {"html": "", "plaintext": ""},
    }  # fmt: skip
    calls = [send(build_recipients("gil"), id="bad", **change) for change in changes.values()]
    for text, failed in zip(changes, run_clients(server.url, str(server.key), calls), strict=True):
        assert failed["error"]["status"] == 400
        assert text in failed["error"]["details"]
    assert find_messages(server, to="gil@example.org") == []


def test_wrong_key_is_refused(server: Server) -> None:
    """Ghost gets 401, as from Mailgun."""
    [failed] = run_clients(server.url, "camp_live_wrong", [send(build_recipients("hal"))])
    assert failed["error"]["status"] == 401


def test_newsletter_of_test_mode_and_later_time(server: Server) -> None:
    """`o:testmode` sends into the test inbox, and `o:deliverytime` holds the messages until then."""
    later = "2031-05-01T10:00:00Z"
    run_clients(server.url, str(server.key), [
        send(build_recipients("ida"), id="test", testmode=True),
        send(build_recipients("jon"), id="later", deliveryTime=later),
    ])  # fmt: skip
    [test], [held] = (find_messages(server, to=f"{name}@example.org") for name in ("ida", "jon"))

    assert (test["test"], test["provider"]) == (True, "capture")
    assert (held["status"], held["next_attempt_at"]) == ("held", "2031-05-01T10:00:00.000Z")
