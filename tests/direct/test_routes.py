"""D24: to whom the mail of a domain goes: its mail servers in their order, itself, or nobody."""

from tests.direct.conftest import Starts, ended, post, send_to
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.recipients import completed
from tests.kit.smtp import SmtpServer
from tests.kit.world import World

HARD = ("5.1.10", "5.1.2")


def test_mail_goes_to_the_servers_of_each_domain(api: Client, shared_world: World) -> None:
    """Each domain's own mail server takes its mail, greeted by our name, and the event says which and how."""
    one = shared_world.mail("mx.one.example", "one.example", "other.example", starttls=True)
    two = shared_world.mail("mx.two.example", "two.example")
    people = [f"p{n}@{domain}" for n in range(5) for domain in ("one.example", "other.example", "two.example")]
    path = send_to(api, *people)
    done = completed(api, path)

    assert done["stats"]["sent"] == 15
    assert sorted(message.to for message in one.messages) == sorted(p for p in people if not p.endswith("two.example"))
    assert len(two.messages) == 5
    assert {entry.line for entry in one.phases("ehlo")} == {"EHLO mail.bakery.example"}
    # Opportunistic: encrypted where it is offered, whatever the certificate is
    assert all(message.tls for message in one.messages) and not any(message.tls for message in two.messages)
    said = {(event["data"]["mx"], event["data"]["tls"]) for event in api.all("/events", event="email_sent")}
    assert said == {("mx.one.example", "TLSv1.3"), ("mx.two.example", "none")}


def test_a_domain_without_mx_is_its_own_server(api: Client, shared_world: World) -> None:
    """No MX but an address: the mail goes there (RFC 5321, 5.1)."""
    own = shared_world.server("plain.example")
    ended(api, post(api, "bo@plain.example"), "sent")

    assert own.messages[0].to == "bo@plain.example"


def test_the_other_servers_are_tried_before_it_is_put_off(api: Client, shared_world: World) -> None:
    """A server that is away, one that says 421 and one that says 554 leave it to the next; nobody's attempt is lost."""
    shared_world.host("away.example")
    busy = shared_world.server("busy.example")
    busy.rules.refuse("connect", code=421, text="4.3.2 too busy")
    closed = shared_world.server("closed.example")
    closed.rules.refuse("connect", code=554, text="5.7.1 no service")
    last = shared_world.server("last.example")
    shared_world.mx("shop.example", "away.example", "nowhere.example", "busy.example", "closed.example", "last.example")
    row = ended(api, post(api, "bo@shop.example"), "sent")

    assert (row["attempts"], len(last.messages)) == (1, 1)
    assert busy.connections == closed.connections == 1


def test_equal_servers_share_the_mail(api: Client, shared_world: World) -> None:
    """Of servers that stand equal each gets some (RFC 5321, 5.1)."""
    first, second = shared_world.server("a.example"), shared_world.server("b.example")
    for n in range(16):
        # Each with a connection of its own
        shared_world.dns.set(f"even{n}.example", "MX", "10 a.example.", "10 b.example.", f"20 never{n}.example.")
    completed(api, send_to(api, *[f"p@even{n}.example" for n in range(16)]))

    assert len(first.messages) + len(second.messages) == 16
    assert first.messages and second.messages


def test_who_takes_no_mail_is_refused_at_once(api: Client, shared_world: World) -> None:
    """A null MX and a domain that is not there fail for good, and no server is asked.

    Who says so is suppressed at once; a domain may be missing for a day, so that counts once it is seen again.
    """
    shared_world.dns.set("null.example", "MX", "0 .")
    rows = [ended(api, post(api, f"bo@{domain}"), "failed") for domain in ("null.example", "gone.example")]

    assert tuple(row["error"]["enhanced"] for row in rows) == HARD
    assert {row["attempts"] for row in rows} == {1}
    assert "null MX" in rows[0]["error"]["text"] and "gone.example" in rows[1]["error"]["text"]
    reasons = {row["address"]: row["reason"] for row in api.all("/suppressions")}
    assert reasons == {"bo@null.example": "hard_bounce"}
    ended(api, post(api, "bo@gone.example"), "failed")
    assert {row["address"] for row in api.all("/suppressions")} == {"bo@null.example", "bo@gone.example"}


def test_name_servers_that_fail_put_off(api: Client, shared_world: World) -> None:
    """SERVFAIL for one domain costs its recipient an attempt and nobody else; answered again, the mail goes."""
    shared_world.dns.fail("ill.example")
    shared_world.dns.set("gmail.com", "MX", "10 gmail.example.")
    well = shared_world.mail("mx.well.example", "well.example")
    path = post(api, "bo@ill.example")
    row = api.wait(path, lambda row: row["attempts"] >= 1)
    ended(api, post(api, "bo@well.example"), "sent")

    assert row["status"] == "queued" and row["error"]["enhanced"] == "4.4.3" and "SERVFAIL" in row["error"]["text"]
    assert len(well.messages) == 1
    shared_world.dns.heal("ill.example")
    shared_world.mx("ill.example", "mx.well.example")


def test_a_server_inside_our_own_network_is_not_reached(api: Client, shared_world: World) -> None:
    """An MX that leads to a private address gets no connection (T28), unless the operator named it."""
    shared_world.mx("inside.example", "mx.inside.example")
    shared_world.dns.set("mx.inside.example", "A", "127.0.0.1")
    shared_world.dns.set("mixed.example", "MX", "10 mx.inside.example.", "20 mx.open.example.")
    opened = shared_world.server("mx.open.example")
    with SmtpServer(port=shared_world.port) as secret:
        row = ended(api, post(api, "bo@inside.example"), "failed")
        ended(api, post(api, "bo@mixed.example"), "sent")

    assert (row["error"]["enhanced"], secret.connections) == ("5.4.4", 0)
    assert "private address" in row["error"]["text"] and "bo@inside.example" not in str(api.all("/suppressions"))
    assert len(opened.messages) == 1


def test_servers_that_cannot_be_reached_hold_up_nobody_else(direct: Starts, world: World, clock: TestClock) -> None:
    """Nobody listens: that costs these recipients attempts, three failures leave the servers alone; others go on.

    A quarter of an hour later they are tried again.
    """
    world.host("mx.away.example")
    world.mx("away.example", "mx.away.example")
    world.mail("gmail.example", "gmail.com")
    well = world.mail("mx.well.example", "well.example")
    server = direct(clock=clock, retry_after="600")
    api = server.client()
    path = send_to(api, *[f"a{n}@away.example" for n in range(6)], *[f"w{n}@well.example" for n in range(30)])
    well.wait_for(30)
    rows = api.wait("/messages", lambda rows: all(row["attempts"] >= 1 for row in rows), status="queued", limit=100)

    assert len(rows) == 6
    assert any("no attempt for" in row["error"]["text"] for row in rows)
    assert {row["error"]["enhanced"] for row in rows} == {"4.4.1"}
    assert api.get("/delivery/status").expect(200)["open"]
    assert api.get(path).expect(200)["status"] == "active"
    found = world.server("mx.away.example")
    clock.advance(minutes=16)
    completed(api, path)
    assert len(found.messages) == 6


def test_nothing_at_all_can_be_reached(direct: Starts, world: World) -> None:
    """Port 25 is blocked: said so, nobody's attempt, and when it opens all goes by itself."""
    for name, domain in (("gmail.example", "gmail.com"), ("mx.shop.example", "shop.example")):
        world.host(name)
        world.mx(domain, name)
    world.server("elsewhere.example")
    server = direct()
    api = server.client()
    path = send_to(api, *[f"p{n}@shop.example" for n in range(5)])
    status = api.wait("/delivery/status", lambda row: not row["open"])
    words = status["obstacles"][0]["text"]
    waiting = api.get(path).expect(200)["waiting"]
    rows = api.all("/messages", status="queued")

    assert "blocked" in words and str(world.port) in words and "gmail.com" in words
    assert waiting["reason"] == "unreachable" and {row["attempts"] for row in rows} == {0}
    found = world.server("mx.shop.example")
    completed(api, path)
    assert len(found.messages) == 5


def test_no_name_server_answers(direct: Starts, world: World) -> None:
    """Without any name server the way out is closed, and nobody's attempt is lost."""
    world.mail("mx.shop.example", "shop.example")
    for name in ("shop.example", "gmail.com", "outlook.com", "yahoo.com"):
        world.dns.fail(name)
    server = direct()
    api = server.client()
    path = post(api, "bo@shop.example")
    status = api.wait("/delivery/status", lambda row: not row["open"])

    assert "no name server answers" in status["obstacles"][0]["text"]
    assert api.get(path).expect(200)["attempts"] == 0
