"""`campanero doctor` on the way of mail: names in DNS, addresses in use, doors, what waits, and a seed read back."""

import json
import socket
from typing import Any

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.dns import DnsServer
from tests.kit.sending_domains import verified
from tests.kit.server import Server, free_port
from tests.kit.smtp import SmtpServer


def found(server: Server, *options: str, expect: int | None = 0) -> dict[str, list[dict[str, Any]]]:
    """Run it and answer its findings by their check."""
    answer = json.loads(server.cli("doctor", "--json", *options, expect=expect).stdout)
    grouped: dict[str, list[dict[str, Any]]] = {}
    for one in answer["findings"]:
        grouped.setdefault(one["check"], []).append(one)
    assert answer["ok"] == all(one["level"] != "fail" for one in answer["findings"])
    return grouped


def levels(found: dict[str, list[dict[str, Any]]], start: str) -> dict[str, str]:
    """Return the levels of the checks that begin so."""
    return {name: one["level"] for name, lines in found.items() for one in lines if name.startswith(start)}


@pytest.fixture
def bakery(fresh_server: FreshServer, dns: DnsServer) -> tuple[Server, DnsServer]:
    """An installation whose account writes from a domain that is verified."""
    server = fresh_server(env={**dns.env, "CAMPANERO_BASE_URL": "https://mail.bakery.example:9"})
    api = server.client()
    verified(api, dns, "bakery.example")
    api.patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
    return server, dns


def test_records_that_are_right_and_that_are_lost(bakery: tuple[Server, DnsServer]) -> None:
    """All right is one line; a record that is gone is named, with the line to paste."""
    server, dns = bakery
    before = found(server)
    [record] = [one for one in server.client().get("/domains").json[0]["dns_records"] if one["purpose"] == "dkim"]
    dns.set(record["name"], "TXT", "v=DKIM1; p=bm9uZQ==")
    [after] = found(server)["domain bakery.example"]

    assert [one["level"] for one in before["domain bakery.example"]] == ["ok"]
    assert before["from"][0]["level"] == "ok" and "ana@bakery.example" in before["from"][0]["words"]
    assert after["level"] == "warn" and record["name"] in after["words"]  # nothing leaves yet: a warning
    assert after["fix"] == f'{record["name"]}. TXT "{record["value"]}"'
    assert server.client().get("/domains").json[0]["status"] == "verified"


def test_a_sender_that_is_nobodys_fails_where_mail_leaves(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """An address whose domain was never verified is refused by the service, and the doctor says so first."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false"})
    server.client().patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
    told = found(server, expect=1)

    assert told["from"][0]["level"] == "fail" and "bakery.example" in told["from"][0]["words"]
    assert (told["links"][0]["level"], told["domains"][0]["level"]) == ("warn", "warn")
    assert told["links"][0]["fix"].startswith("base_url = ")


def test_doors(fresh_server: FreshServer) -> None:
    """What listens is asked; a door that somebody else has is a failure before the next start finds it so."""
    port = free_port()
    server = fresh_server(env={"CAMPANERO_INBOUND__LISTEN": f"127.0.0.1:{port}"})
    running = found(server)
    server.stop()
    ended = found(server)
    with socket.create_server(("127.0.0.1", port)) as other:
        other.listen()
        taken = found(server, expect=1)

    for told in (running, ended):
        assert levels(told, "listen") == {"listen": "ok"}
        assert levels(told, "inbound") == {"inbound.listen": "ok"}
    assert "answers" in running["inbound.listen"][0]["words"] and "free" in ended["inbound.listen"][0]["words"]
    assert taken["inbound.listen"][0]["level"] == "fail"


def test_what_should_have_moved(fresh_server: FreshServer) -> None:
    """Messages that are due for long while the service runs are told, and a clock that went back."""
    server = fresh_server()
    api = server.client()
    later = "2030-01-01T00:00:00Z"
    made = api.post("/messages", {"to": "a@example.org", "subject": "s", "body": "x", "send_at": later}).expect(201)
    assert levels(found(server), "queue") == {"queue": "ok"}
    books = apsw.Connection(str(server.data / "campanero.db"))
    books.execute("UPDATE message SET status = 'sending', updated_at = 1, claimed_by = 'x' WHERE id = ?", (made["id"],))
    stuck = found(server)["queue"]
    books.execute("UPDATE message SET updated_at = 4000000000000 WHERE id = ?", (made["id"],))
    books.close()
    told = found(server, expect=1)

    assert "in progress" in stuck[-1]["words"] and stuck[-1]["level"] == "warn"
    assert told["clock"][0]["level"] == "fail" and "went back" in told["clock"][0]["words"]


def test_a_seed_is_read_as_its_recipient_would(bakery: tuple[Server, DnsServer]) -> None:
    """Signature, return path and DMARC are judged through DNS, the way out is followed; it leaves no mail behind."""
    server, dns = bakery
    told = found(server, "--seed")
    [record] = [one for one in server.client().get("/domains").json[0]["dns_records"] if one["purpose"] == "dkim"]
    other = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
    dns.set(record["name"], "TXT", f"v=DKIM1; p={other}")
    spoiled = found(server, "--seed", expect=1)

    assert levels(told, "seed") == dict.fromkeys(
        ("seed", "seed DKIM", "seed SPF", "seed DMARC", "seed one-click"), "ok"
    )
    assert spoiled["seed DKIM"][0]["level"] == "fail" and "another" in spoiled["seed DKIM"][0]["words"]
    assert server.client().get("/capture").expect(200) == []
    assert {one["test"] for one in server.client().get("/messages").expect(200)} == {True}


def test_a_seed_needs_the_service_and_a_signature(fresh_server: FreshServer, dns: DnsServer) -> None:
    """Without a From address there is nothing to sign and no record to propose; without the service it fails."""
    server = fresh_server(env=dns.env)
    unsigned = found(server, "--seed")
    server.stop()
    ended = found(server, "--seed", expect=1)

    assert unsigned["seed sender"][0]["level"] == "warn" and unsigned["seed one-click"][0]["level"] == "warn"
    assert not any("campanero.invalid" in one["fix"] for lines in unsigned.values() for one in lines)
    assert ended["seed"][0]["fix"] == "campanero serve"


def test_no_record_with_an_address_of_this_machine_is_proposed(fresh_server: FreshServer, dns: DnsServer) -> None:
    """A domain on an installation without a public name: one line names the records that wait and what to set."""
    server = fresh_server(env=dns.env)
    made = server.client().post("/domains", {"domain": {"name": "bakery.example"}}).expect(201)
    lines = found(server)["domain bakery.example"]
    [waiting] = [one for one in lines if "base_url" in one["words"]]
    for name in ("MX bounce.bakery.example", "TXT bounce.bakery.example", "CNAME track.bakery.example"):
        assert name in waiting["words"]
    assert waiting["level"] == "warn" and waiting["fix"] == 'base_url = "https://mail.example.com"'
    assert not any(word in one["fix"] for one in lines for word in ("127.0.0.1", "localhost"))
    assert not any("127.0.0.1" in one["value"] for one in made["dns_records"])
    assert {one["purpose"] for one in made["dns_records"] if not one["value"]} == {"return_path", "spf", "tracking"}
