"""From a name somebody typed to mail in that name, and back to nothing when the records go."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.dns import DnsServer
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

STRICT = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false", "CAMPANERO_EMAIL__DIRECT__HELO": "mail.us.example"}


class Place(NamedTuple):
    """One installation, and the world around it."""

    server: Server
    api: Client
    dns: DnsServer
    smtp: SmtpServer
    clock: TestClock


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server on a real transport that sends from verified domains only."""
    clock = TestClock(tmp_path_factory.mktemp("domains") / "clock")
    with (
        DnsServer() as dns, SmtpServer() as smtp,
        Server(relay=smtp.port, clock=clock, env=dns.env | STRICT).set_up() as server,
    ):  # fmt: skip
        yield Place(server, server.give_address().client(), dns, smtp, clock)
        server.stop()


def add(api: Client, name: str) -> Any:
    """Add a domain and answer it."""
    return api.post("/domains", {"domain": {"name": name}}).expect(201)


def letter(api: Client, sender: str) -> tuple[int, str | None]:
    """Send one message from an address and answer status and reason."""
    body = {"to": "anna@example.org", "subject": "s", "body": "<p>x</p>", "from_email": sender}
    answer = api.post("/messages", body)
    return answer.status, answer.json.get("reason")


def campaign(api: Client, sender: str) -> str:
    """Make a campaign to one person and answer its path."""
    group = api.post("/lists", {"name": f"for {sender}"}).expect(201)["id"]
    api.post("/contacts", {"email": "anna@example.org", "list_ids": [group]})
    body = {"name": "News", "trigger_attributes": {"contact_list_id": group}}
    content = {"subject": "s", "body": "<p>x</p>", "from_email": sender}
    return f"/campaigns/{api.post('/campaigns', body | {'template_attributes': content}).expect(201)['id']}"


def events(api: Client, name: str, path: str) -> list[Any]:
    """Return what was recorded of a domain under a name."""
    return list(api.get("/events", event=name, resource_uid=f"domain:{path.rpartition('/')[2]}").expect(200))


def after(api: Client, clock: TestClock, path: str, **time: float) -> Any:
    """Let time pass until a domain is looked up by itself, and answer it."""
    before = api.get(path).expect(200)["checked_at"]
    clock.advance(**time)
    return api.wait(path, lambda row: row["checked_at"] != before)


def test_a_domain_is_verified_and_sends(place: Place) -> None:
    """Nothing leaves in a name before its records are there, and nothing in a name beside it."""
    api, dns, clock, name = place.api, place.dns, place.clock, "bakery.example"
    made = add(api, name)
    path = f"/domains/{made['id']}"
    assert made["status"] == "pending" and {one["valid"] for one in made["dns_records"]} == {"unknown"}
    assert letter(api, f"us@{name}") == (422, "sender_not_ready")
    news = campaign(api, f"us@{name}")
    assert api.post(f"{news}/send").expect(422)["reason"] == "sender_not_ready"

    dns.publish(made)
    row = after(api, clock, path, seconds=61)
    # The name for links waits for a public one: this installation is reached at an address of this machine
    found = {one["valid"] for one in row["dns_records"] if one["purpose"] != "tracking"}
    assert (row["status"], found) == ("verified", {"valid"})
    assert api.get("/account").json["domain_verified"] is True
    assert letter(api, f"Us@{name.upper()}")[0] == 201
    assert api.post(f"{news}/send").expect(200)["phase"] in ("holding", "sending")
    api.wait(news, lambda row: row["status"] == "completed")
    for other in (f"us@news.{name}", f"us@{name}.evil", "us@bäkery.example", "us@bаkery.example", "ceo@gmail.com"):
        assert letter(api, other) == (422, "sender_not_ready"), other
    assert api.delete(path).expect(200)["name"] == name
    assert letter(api, f"us@{name}") == (422, "sender_not_ready")


def test_records_that_go_stop_the_sending_within_a_day(place: Place) -> None:
    """The first look-up that misses them says so and since when; the third stops it, campaigns too; then it heals."""
    api, dns, clock, name = place.api, place.dns, place.clock, "mill.example"
    made = add(api, name)
    path = f"/domains/{made['id']}"
    dns.publish(made)
    assert api.post(f"{path}/verify").expect(200)["status"] == "verified"
    news = campaign(api, f"us@{name}")
    place.smtp.rules.refuse("rcpt", code=451, text="4.3.0 later")
    api.post(f"{news}/send").expect(200)
    used = api.delete(path).expect(422)
    assert (used["reason"], [f"/campaigns/{one['campaign_id']}" for one in used["used_by"]]) == ("in_use", [news])

    dns.remove(f"_campanero.{name}")
    gone = clock.now()
    row = after(api, clock, path, hours=6, minutes=1)
    first = row["attention_since"]
    assert (row["status"], row["attention"]) == ("verified", f"TXT _campanero.{name}: there is no TXT record yet")
    assert letter(api, f"us@{name}")[0] == 201
    dns.fail(f"_campanero.{name}")
    for _ in range(3):  # a resolver that fails says nothing about the records
        row = api.post(f"{path}/verify").expect(200)
        assert (row["status"], row["attention_since"]) == ("verified", first)
    dns.heal(f"_campanero.{name}")
    assert after(api, clock, path, hours=6, minutes=1)["status"] == "verified"
    row = after(api, clock, path, hours=6, minutes=1)
    assert (row["status"], row["attention_since"]) == ("failed", first)
    assert clock.now() - gone < 86_400
    assert [one["data"]["name"] for one in events(api, "domain_failed", path)] == [name]
    assert letter(api, f"us@{name}") == (422, "sender_not_ready")
    paused = api.wait(news, lambda row: row["status"] == "paused")
    assert paused["pause_reason"] == "domain_failed"

    assert api.post(f"{news}/resume").expect(422)["reason"] == "sender_not_ready"

    dns.publish(made, "ownership")
    row = after(api, clock, path, hours=6, minutes=1)
    assert (row["status"], row["attention"], len(events(api, "domain_verified", path))) == ("verified", None, 2)
    place.smtp.rules.clear()
    api.post(f"{news}/resume").expect(200)
    api.wait(news, lambda row: row["status"] == "completed")


def test_a_domain_waits_three_days_and_not_for_a_resolver(place: Place) -> None:
    """Without records it fails after 72 hours; while nobody can be asked it waits, however long."""
    api, dns = place.api, place.dns
    empty, broken, looped = (add(api, name) for name in ("empty.example", "broken.example", "looped.example"))
    dns.fail("_campanero.broken.example")
    dns.fail(next(one["name"] for one in broken["dns_records"] if one["purpose"] == "dkim"))
    dns.set("_campanero.looped.example", "CNAME", "x.example.")
    dns.set("x.example", "CNAME", "_campanero.looped.example.")
    paths = {one["name"]: f"/domains/{one['id']}" for one in (empty, broken, looped)}
    statuses = []
    for time in ({"hours": 71, "minutes": 30}, {"hours": 1}):
        place.clock.advance(**time)
        due = [row["next_check_at"] for row in api.get("/domains").json]
        rows = [api.wait(path, lambda row, due=due: row["next_check_at"] not in due) for path in paths.values()]
        statuses.append([row["status"] for row in rows])
    assert statuses == [["pending"] * 3, ["failed", "pending", "failed"]]
    (owner,) = (one for one in rows[1]["dns_records"] if one["purpose"] == "ownership")
    assert (owner["valid"], owner["problem"]) == ("unknown", "the DNS server answered SERVFAIL")
    assert "form a loop" in rows[2]["attention"]
    dns.remove("_campanero.broken.example")
    dns.heal(next(one["name"] for one in broken["dns_records"] if one["purpose"] == "dkim"))
    for one in (empty, broken):
        dns.publish(one)
        assert api.post(f"{paths[one['name']]}/verify").expect(200)["status"] == "verified"


def test_two_accounts_claim_one_domain(place: Place) -> None:
    """Each has a token and a key of its own: what one enters in DNS verifies nothing for the other."""
    server, ours, name = place.server, place.api, "shared.example"
    number = server.cli("account", "add", "Elsewhere").stdout.strip()
    theirs = server.client(server.new_key("theirs", "--account", number))
    made, claimed = add(ours, name), add(theirs, name)
    place.dns.publish(made)
    assert ours.post(f"/domains/{made['id']}/verify").expect(200)["status"] == "verified"
    row = theirs.post(f"/domains/{claimed['id']}/verify").expect(200)
    assert row["status"] == "pending"
    (owner,) = (one for one in row["dns_records"] if one["purpose"] == "ownership")
    (token,) = (one["value"] for one in made["dns_records"] if one["purpose"] == "ownership")
    assert (owner["valid"], owner["found"]) == ("invalid", [token])
    assert (letter(ours, f"us@{name}")[0], letter(theirs, f"us@{name}")) == (201, (422, "sender_not_ready"))


def test_a_key_is_changed_without_a_gap(place: Place) -> None:
    """The next key's record is wanted beside the old one's; the key signs once that is found, the old one may go."""
    api, dns, clock = place.api, place.dns, place.clock
    made = add(api, "turned.example")
    path = f"/domains/{made['id']}"
    dns.publish(made)
    api.post(f"{path}/verify").expect(200)
    turned = api.post(f"{path}/rotate_key").expect(200)
    assert api.post(f"{path}/rotate_key").expect(200)["dns_records"] == turned["dns_records"]
    assert names(turned, "dkim") == names(made, "dkim") and len(names(turned, "dkim_next")) == 1
    assert api.post(f"{path}/verify").expect(200)["status"] == "verified"
    dns.publish(turned)
    row = after(api, clock, path, hours=1, minutes=1)
    assert (names(row, "dkim"), names(row, "dkim_previous")) == (names(turned, "dkim_next"), names(turned, "dkim"))
    assert (row["status"], len(row["dns_records"])) == ("verified", 7)
    dns.remove(names(turned, "dkim")[0])
    assert api.post(f"{path}/verify").expect(200)["attention"] is None
    row = after(api, clock, path, days=8)
    assert (row["status"], len(row["dns_records"])) == ("verified", 6)


def names(domain: Any, purpose: str) -> list[str]:
    """Return the names of a domain's records of a purpose."""
    return [one["name"] for one in domain["dns_records"] if one["purpose"] == purpose]
