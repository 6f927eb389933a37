"""Sending domains from being added to sending, and back when their DNS records are removed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.dns import DnsServer
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

STRICT = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false", "CAMPANERO_EMAIL__DIRECT__HELO": "mail.us.example"}


class Installation(NamedTuple):
    """An installation with its DNS server, SMTP server and clock."""

    server: Server
    api: Client
    dns: DnsServer
    smtp: SmtpServer
    clock: TestClock


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A server with a relay that sends from verified domains only."""
    clock = TestClock(tmp_path_factory.mktemp("domains") / "clock")
    with (
        DnsServer() as dns, SmtpServer() as smtp,
        Server(relay=smtp.port, clock=clock, env=dns.env | STRICT).set_up() as server,
    ):  # fmt: skip
        yield Installation(server, server.set_postal_address().client(), dns, smtp, clock)
        server.stop()


def add_domain(api: Client, name: str) -> Any:
    """Add a domain and return it."""
    return api.post("/domains", {"domain": {"name": name}}).expect(201)


def send_message(api: Client, sender: str) -> tuple[int, str | None]:
    """Send a message from an address; return status and reason."""
    body = {"to": "anna@example.org", "subject": "s", "body": "<p>x</p>", "from_email": sender}
    response = api.post("/messages", body)
    return response.status, response.json.get("reason")


def create_campaign(api: Client, sender: str) -> str:
    """Create a campaign to one contact and return its path."""
    list_id = api.post("/lists", {"name": f"for {sender}"}).expect(201)["id"]
    api.post("/contacts", {"email": "anna@example.org", "list_ids": [list_id]})
    body = {"name": "News", "trigger_attributes": {"contact_list_id": list_id}}
    content = {"subject": "s", "body": "<p>x</p>", "from_email": sender}
    return f"/campaigns/{api.post('/campaigns', body | {'template_attributes': content}).expect(201)['id']}"


def events(api: Client, name: str, path: str) -> list[Any]:
    """Return the events of a name about a domain."""
    return list(api.get("/events", event=name, resource_uid=f"domain:{path.rpartition('/')[2]}").expect(200))


def advance_until_checked(api: Client, clock: TestClock, path: str, **time: float) -> Any:
    """Advance the clock until the domain is checked again, and return it."""
    before = api.get(path).expect(200)["checked_at"]
    clock.advance(**time)
    return api.wait(path, lambda row: row["checked_at"] != before)


def test_a_domain_is_verified_and_sends(installation: Installation) -> None:
    """Mail is accepted only from a verified domain itself, not from similar or deleted ones."""
    api, dns, clock, name = installation.api, installation.dns, installation.clock, "bakery.example"
    domain = add_domain(api, name)
    path = f"/domains/{domain['id']}"
    assert domain["status"] == "pending" and {record["valid"] for record in domain["dns_records"]} == {"unknown"}
    assert send_message(api, f"us@{name}") == (422, "sender_not_ready")
    campaign_path = create_campaign(api, f"us@{name}")
    assert api.post(f"{campaign_path}/send").expect(422)["reason"] == "sender_not_ready"

    dns.publish(domain)
    row = advance_until_checked(api, clock, path, seconds=61)
    # The tracking record needs a public base URL, which this installation lacks
    states = {record["valid"] for record in row["dns_records"] if record["purpose"] != "tracking"}
    assert (row["status"], states) == ("verified", {"valid"})
    assert api.get("/account").json["domain_verified"] is True
    assert send_message(api, f"Us@{name.upper()}")[0] == 201
    assert api.post(f"{campaign_path}/send").expect(200)["phase"] in ("holding", "sending")
    api.wait(campaign_path, lambda row: row["status"] == "completed")
    for other in (f"us@news.{name}", f"us@{name}.evil", "us@bäkery.example", "us@bаkery.example", "ceo@gmail.com"):
        assert send_message(api, other) == (422, "sender_not_ready"), other
    assert api.delete(path).expect(200)["name"] == name
    assert send_message(api, f"us@{name}") == (422, "sender_not_ready")


def test_removed_records_stop_sending_within_a_day(installation: Installation) -> None:
    """The first failed check warns, the third fails the domain and pauses its campaigns; later it is verified again."""
    api, dns, clock, name = installation.api, installation.dns, installation.clock, "mill.example"
    domain = add_domain(api, name)
    path = f"/domains/{domain['id']}"
    dns.publish(domain)
    assert api.post(f"{path}/verify").expect(200)["status"] == "verified"
    campaign_path = create_campaign(api, f"us@{name}")
    installation.smtp.rules.reject("rcpt", code=451, text="4.3.0 later")
    api.post(f"{campaign_path}/send").expect(200)
    rejection = api.delete(path).expect(422)
    assert (rejection["reason"], [f"/campaigns/{entry['campaign_id']}" for entry in rejection["used_by"]]) == (
        "in_use",
        [campaign_path],
    )

    dns.remove(f"_campanero.{name}")
    removed_at = clock.now()
    row = advance_until_checked(api, clock, path, hours=6, minutes=1)
    first = row["attention_since"]
    assert (row["status"], row["attention"]) == ("verified", f"TXT _campanero.{name}: there is no TXT record yet")
    assert send_message(api, f"us@{name}")[0] == 201
    dns.fail(f"_campanero.{name}")
    for _ in range(3):  # a failing resolver says nothing about the records
        row = api.post(f"{path}/verify").expect(200)
        assert (row["status"], row["attention_since"]) == ("verified", first)
    dns.clear_faults(f"_campanero.{name}")
    assert advance_until_checked(api, clock, path, hours=6, minutes=1)["status"] == "verified"
    row = advance_until_checked(api, clock, path, hours=6, minutes=1)
    assert (row["status"], row["attention_since"]) == ("failed", first)
    assert clock.now() - removed_at < 86_400
    assert [entry["data"]["name"] for entry in events(api, "domain_failed", path)] == [name]
    assert send_message(api, f"us@{name}") == (422, "sender_not_ready")
    paused = api.wait(campaign_path, lambda row: row["status"] == "paused")
    assert paused["pause_reason"] == "domain_failed"

    assert api.post(f"{campaign_path}/resume").expect(422)["reason"] == "sender_not_ready"

    dns.publish(domain, "ownership")
    row = advance_until_checked(api, clock, path, hours=6, minutes=1)
    assert (row["status"], row["attention"], len(events(api, "domain_verified", path))) == ("verified", None, 2)
    installation.smtp.rules.clear()
    api.post(f"{campaign_path}/resume").expect(200)
    api.wait(campaign_path, lambda row: row["status"] == "completed")


def test_verification_expires_after_three_days(installation: Installation) -> None:
    """A domain without records fails after 72 hours; while DNS fails it stays pending."""
    api, dns = installation.api, installation.dns
    empty, broken, looped = (add_domain(api, name) for name in ("empty.example", "broken.example", "looped.example"))
    dns.fail("_campanero.broken.example")
    dns.fail(next(entry["name"] for entry in broken["dns_records"] if entry["purpose"] == "dkim"))
    dns.set("_campanero.looped.example", "CNAME", "x.example.")
    dns.set("x.example", "CNAME", "_campanero.looped.example.")
    paths = {entry["name"]: f"/domains/{entry['id']}" for entry in (empty, broken, looped)}
    statuses = []
    for time in ({"hours": 71, "minutes": 30}, {"hours": 1}):
        installation.clock.advance(**time)
        due = [row["next_check_at"] for row in api.get("/domains").json]
        rows = [api.wait(path, lambda row, due=due: row["next_check_at"] not in due) for path in paths.values()]
        statuses.append([row["status"] for row in rows])
    assert statuses == [["pending"] * 3, ["failed", "pending", "failed"]]
    (owner,) = (entry for entry in rows[1]["dns_records"] if entry["purpose"] == "ownership")
    assert (owner["valid"], owner["problem"]) == ("unknown", "the DNS server answered SERVFAIL")
    assert "form a loop" in rows[2]["attention"]
    dns.remove("_campanero.broken.example")
    dns.clear_faults(next(entry["name"] for entry in broken["dns_records"] if entry["purpose"] == "dkim"))
    for entry in (empty, broken):
        dns.publish(entry)
        assert api.post(f"{paths[entry['name']]}/verify").expect(200)["status"] == "verified"


def test_two_accounts_claim_one_domain(installation: Installation) -> None:
    """Each account has its own token: the record of one does not verify the domain for the other."""
    server, ours, name = installation.server, installation.api, "shared.example"
    account_id = server.cli("account", "add", "Elsewhere").stdout.strip()
    theirs = server.client(server.new_key("theirs", "--account", account_id))
    domain, claimed = add_domain(ours, name), add_domain(theirs, name)
    installation.dns.publish(domain)
    assert ours.post(f"/domains/{domain['id']}/verify").expect(200)["status"] == "verified"
    row = theirs.post(f"/domains/{claimed['id']}/verify").expect(200)
    assert row["status"] == "pending"
    (owner,) = (record for record in row["dns_records"] if record["purpose"] == "ownership")
    (token,) = (record["value"] for record in domain["dns_records"] if record["purpose"] == "ownership")
    assert (owner["valid"], owner["found"]) == ("invalid", [token])
    assert (send_message(ours, f"us@{name}")[0], send_message(theirs, f"us@{name}")) == (201, (422, "sender_not_ready"))


def test_key_rotation(installation: Installation) -> None:
    """The next key signs once its record is found; then the old record may be removed, and disappears after days."""
    api, dns, clock = installation.api, installation.dns, installation.clock
    domain = add_domain(api, "turned.example")
    path = f"/domains/{domain['id']}"
    dns.publish(domain)
    api.post(f"{path}/verify").expect(200)
    rotated = api.post(f"{path}/rotate_key").expect(200)
    assert api.post(f"{path}/rotate_key").expect(200)["dns_records"] == rotated["dns_records"]
    assert (
        record_names(rotated, "dkim") == record_names(domain, "dkim") and len(record_names(rotated, "dkim_next")) == 1
    )
    assert api.post(f"{path}/verify").expect(200)["status"] == "verified"
    dns.publish(rotated)
    row = advance_until_checked(api, clock, path, hours=1, minutes=1)
    assert (record_names(row, "dkim"), record_names(row, "dkim_previous")) == (
        record_names(rotated, "dkim_next"),
        record_names(rotated, "dkim"),
    )
    assert (row["status"], len(row["dns_records"])) == ("verified", 7)
    dns.remove(record_names(rotated, "dkim")[0])
    assert api.post(f"{path}/verify").expect(200)["attention"] is None
    row = advance_until_checked(api, clock, path, days=8)
    assert (row["status"], len(row["dns_records"])) == ("verified", 6)


def record_names(domain: Any, purpose: str) -> list[str]:
    """Return the names of a domain's records of a purpose."""
    return [record["name"] for record in domain["dns_records"] if record["purpose"] == purpose]
