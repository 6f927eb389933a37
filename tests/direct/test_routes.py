"""Routing of direct delivery: the MX hosts of a domain in order, the domain itself, or a failure (D24)."""

from tests.direct.conftest import StartDirect, post, send_to, wait_for_status
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.mail_network import MailNetwork
from tests.kit.recipients import wait_until_completed
from tests.kit.smtp import SmtpServer

PERMANENT_CODES = ("5.1.10", "5.1.2")


def test_each_domain_uses_its_own_servers(api: Client, shared_world: MailNetwork) -> None:
    """Each domain's MX host gets its mail and our HELO name; the event names the host and the TLS version."""
    first_server = shared_world.mail("mx.one.example", "one.example", "other.example", starttls=True)
    second_server = shared_world.mail("mx.two.example", "two.example")
    addresses = [f"p{n}@{domain}" for n in range(5) for domain in ("one.example", "other.example", "two.example")]
    path = send_to(api, *addresses)
    campaign = wait_until_completed(api, path)

    assert campaign["stats"]["sent"] == 15
    assert sorted(message.to for message in first_server.messages) == sorted(
        p for p in addresses if not p.endswith("two.example")
    )
    assert len(second_server.messages) == 5
    assert {entry.line for entry in first_server.phases("ehlo")} == {"EHLO mail.bakery.example"}
    # Opportunistic TLS: used where it is offered, whatever the certificate
    assert all(message.tls for message in first_server.messages) and not any(
        message.tls for message in second_server.messages
    )
    routes = {(event["data"]["mx"], event["data"]["tls"]) for event in api.all("/events", event="email_sent")}
    assert routes == {("mx.one.example", "TLSv1.3"), ("mx.two.example", "none")}


def test_a_domain_without_mx_uses_its_address(api: Client, shared_world: MailNetwork) -> None:
    """Without MX records the mail goes to the domain's address (RFC 5321, 5.1)."""
    own = shared_world.server("plain.example")
    wait_for_status(api, post(api, "bo@plain.example"), "sent")

    assert own.messages[0].to == "bo@plain.example"


def test_all_servers_are_tried_before_a_deferral(api: Client, shared_world: MailNetwork) -> None:
    """An unreachable server, a 421 and a 554 greeting lead to the next server within one attempt."""
    shared_world.host("away.example")
    busy = shared_world.server("busy.example")
    busy.rules.reject("connect", code=421, text="4.3.2 too busy")
    closed = shared_world.server("closed.example")
    closed.rules.reject("connect", code=554, text="5.7.1 no service")
    last = shared_world.server("last.example")
    shared_world.mx("shop.example", "away.example", "nowhere.example", "busy.example", "closed.example", "last.example")
    row = wait_for_status(api, post(api, "bo@shop.example"), "sent")

    assert (row["attempts"], len(last.messages)) == (1, 1)
    assert busy.connections == closed.connections == 1


def test_equal_preferences_share_the_mail(api: Client, shared_world: MailNetwork) -> None:
    """Servers with the same MX preference each get some of the mail (RFC 5321, 5.1)."""
    first, second = shared_world.server("a.example"), shared_world.server("b.example")
    for n in range(16):
        # Different MX records, so that each domain gets its own connection
        shared_world.dns.set(f"even{n}.example", "MX", "10 a.example.", "10 b.example.", f"20 never{n}.example.")
    wait_until_completed(api, send_to(api, *[f"p@even{n}.example" for n in range(16)]))

    assert len(first.messages) + len(second.messages) == 16
    assert first.messages and second.messages


def test_null_mx_and_missing_domains_fail(api: Client, shared_world: MailNetwork) -> None:
    """A null MX and a missing domain fail at the first attempt.

    A null MX suppresses the address at once; a missing domain, which may be temporary, does so at the second failure.
    """
    shared_world.dns.set("null.example", "MX", "0 .")
    rows = [wait_for_status(api, post(api, f"bo@{domain}"), "failed") for domain in ("null.example", "gone.example")]

    assert tuple(row["error"]["enhanced"] for row in rows) == PERMANENT_CODES
    assert {row["attempts"] for row in rows} == {1}
    assert "null MX" in rows[0]["error"]["text"] and "gone.example" in rows[1]["error"]["text"]
    reasons = {row["address"]: row["reason"] for row in api.all("/suppressions")}
    assert reasons == {"bo@null.example": "hard_bounce"}
    wait_for_status(api, post(api, "bo@gone.example"), "failed")
    assert {row["address"] for row in api.all("/suppressions")} == {"bo@null.example", "bo@gone.example"}


def test_servfail_defers_the_message(api: Client, shared_world: MailNetwork) -> None:
    """SERVFAIL defers the messages of its domain; other domains get their mail."""
    shared_world.dns.fail("ill.example")
    shared_world.dns.set("gmail.com", "MX", "10 gmail.example.")
    working = shared_world.mail("mx.well.example", "well.example")
    path = post(api, "bo@ill.example")
    row = api.wait(path, lambda row: row["attempts"] >= 1)
    wait_for_status(api, post(api, "bo@well.example"), "sent")

    assert row["status"] == "queued" and row["error"]["enhanced"] == "4.4.3" and "SERVFAIL" in row["error"]["text"]
    assert len(working.messages) == 1
    shared_world.dns.clear_faults("ill.example")
    shared_world.mx("ill.example", "mx.well.example")


def test_private_addresses_are_not_contacted(api: Client, shared_world: MailNetwork) -> None:
    """An MX host with a private address gets no connection; the next host does (T28)."""
    shared_world.mx("inside.example", "mx.inside.example")
    shared_world.dns.set("mx.inside.example", "A", "127.0.0.1")
    shared_world.dns.set("mixed.example", "MX", "10 mx.inside.example.", "20 mx.open.example.")
    opened = shared_world.server("mx.open.example")
    with SmtpServer(port=shared_world.port) as internal:
        row = wait_for_status(api, post(api, "bo@inside.example"), "failed")
        wait_for_status(api, post(api, "bo@mixed.example"), "sent")

    assert (row["error"]["enhanced"], internal.connections) == ("5.4.4", 0)
    assert "private address" in row["error"]["text"] and "bo@inside.example" not in str(api.all("/suppressions"))
    assert len(opened.messages) == 1


def test_unreachable_servers_do_not_delay_others(direct: StartDirect, world: MailNetwork, clock: TestClock) -> None:
    """After three failed connections a server gets no more attempts for a quarter of an hour; others get their mail."""
    world.host("mx.away.example")
    world.mx("away.example", "mx.away.example")
    world.mail("gmail.example", "gmail.com")
    working = world.mail("mx.well.example", "well.example")
    server = direct(clock=clock, retry_after="600")
    api = server.client()
    path = send_to(api, *[f"a{n}@away.example" for n in range(6)], *[f"w{n}@well.example" for n in range(30)])
    working.wait_for(30)
    rows = api.wait("/messages", lambda rows: all(row["attempts"] >= 1 for row in rows), status="queued", limit=100)

    assert len(rows) == 6
    assert any("no attempt for" in row["error"]["text"] for row in rows)
    assert {row["error"]["enhanced"] for row in rows} == {"4.4.1"}
    assert api.get("/delivery/status").expect(200)["open"]
    assert api.get(path).expect(200)["status"] == "active"
    away = world.server("mx.away.example")
    clock.advance(minutes=16)
    wait_until_completed(api, path)
    assert len(away.messages) == 6


def test_a_blocked_port_25_stops_sending(direct: StartDirect, world: MailNetwork) -> None:
    """With port 25 blocked, the status says so, no attempt is counted, and sending resumes once it opens."""
    for name, domain in (("gmail.example", "gmail.com"), ("mx.shop.example", "shop.example")):
        world.host(name)
        world.mx(domain, name)
    world.server("elsewhere.example")
    server = direct()
    api = server.client()
    path = send_to(api, *[f"p{n}@shop.example" for n in range(5)])
    status = api.wait("/delivery/status", lambda row: not row["open"])
    text = status["obstacles"][0]["text"]
    waiting = api.get(path).expect(200)["waiting"]
    rows = api.all("/messages", status="queued")

    assert "blocked" in text and str(world.port) in text and "gmail.com" in text
    assert waiting["reason"] == "unreachable" and {row["attempts"] for row in rows} == {0}
    shop = world.server("mx.shop.example")
    wait_until_completed(api, path)
    assert len(shop.messages) == 5


def test_without_name_servers_sending_stops(direct: StartDirect, world: MailNetwork) -> None:
    """If no name server responds, sending stops and no attempt is counted."""
    world.mail("mx.shop.example", "shop.example")
    for name in ("shop.example", "gmail.com", "outlook.com", "yahoo.com"):
        world.dns.fail(name)
    server = direct()
    api = server.client()
    path = post(api, "bo@shop.example")
    status = api.wait("/delivery/status", lambda row: not row["open"])

    assert "no name server answers" in status["obstacles"][0]["text"]
    assert api.get(path).expect(200)["attempts"] == 0
