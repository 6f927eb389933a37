"""`campanero doctor` on email: DNS records, sender addresses, ports, stuck messages, and the seed test message."""

import json
import socket
import time
from typing import Any

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.dns import DnsServer
from tests.kit.ports import blackholed_port, open_ports
from tests.kit.sending_domains import add_verified_domain
from tests.kit.server import Server, free_port
from tests.kit.smtp import SmtpServer


def run_doctor(server: Server, *options: str, expect: int | None = 0) -> dict[str, list[dict[str, Any]]]:
    """Run the doctor and return its findings by check."""
    report = json.loads(server.cli("doctor", "--json", *options, expect=expect).stdout)
    grouped: dict[str, list[dict[str, Any]]] = {}
    for finding in report["findings"]:
        grouped.setdefault(finding["check"], []).append(finding)
    assert report["ok"] == all(finding["level"] != "fail" for finding in report["findings"])
    return grouped


def levels(findings: dict[str, list[dict[str, Any]]], start: str) -> dict[str, str]:
    """Return the levels of the checks whose name begins with `start`."""
    return {
        name: finding["level"]
        for name, check_findings in findings.items()
        for finding in check_findings
        if name.startswith(start)
    }


@pytest.fixture
def bakery(fresh_server: FreshServer, dns: DnsServer) -> tuple[Server, DnsServer]:
    """An installation that sends from a verified domain."""
    server = fresh_server(env={**dns.env, "CAMPANERO_BASE_URL": "https://mail.bakery.example:9"})
    api = server.client()
    add_verified_domain(api, dns, "bakery.example")
    api.patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
    return server, dns


def test_dns_records_of_a_domain(bakery: tuple[Server, DnsServer]) -> None:
    """A correct domain is one ok finding; a wrong record is a warning with the line to add."""
    server, dns = bakery
    before = run_doctor(server)
    [record] = [entry for entry in server.client().get("/domains").json[0]["dns_records"] if entry["purpose"] == "dkim"]
    dns.set(record["name"], "TXT", "v=DKIM1; p=bm9uZQ==")
    [after] = run_doctor(server)["domain bakery.example"]

    assert [entry["level"] for entry in before["domain bakery.example"]] == ["ok"]
    assert before["from"][0]["level"] == "ok" and "ana@bakery.example" in before["from"][0]["words"]
    assert after["level"] == "warn" and record["name"] in after["words"]  # a warning, since nothing is sent yet
    assert after["fix"] == f'{record["name"]}. TXT "{record["value"]}"'
    assert server.client().get("/domains").json[0]["status"] == "verified"


def test_a_sender_without_a_verified_domain_fails(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A From address of an unverified domain fails; missing links and domains are warnings."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false"})
    server.client().patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
    findings = run_doctor(server, expect=1)

    assert findings["from"][0]["level"] == "fail" and "bakery.example" in findings["from"][0]["words"]
    assert (findings["links"][0]["level"], findings["domains"][0]["level"]) == ("warn", "warn")
    assert findings["links"][0]["fix"].startswith("base_url = ")


def test_listening_ports(fresh_server: FreshServer) -> None:
    """A port of the service is ok; one that another program uses is a failure."""
    port = free_port()
    server = fresh_server(env={"CAMPANERO_INBOUND__LISTEN": f"127.0.0.1:{port}"})
    running = run_doctor(server)
    server.stop()
    stopped = run_doctor(server)
    with socket.create_server(("127.0.0.1", port)) as other:
        other.listen()
        taken = run_doctor(server, expect=1)

    for findings in (running, stopped):
        assert levels(findings, "listen") == {"listen": "ok"}
        assert levels(findings, "inbound") == {"inbound.listen": "ok"}
    assert "answers" in running["inbound.listen"][0]["words"] and "free" in stopped["inbound.listen"][0]["words"]
    assert taken["inbound.listen"][0]["level"] == "fail"


RELAY = {"CAMPANERO_EMAIL__TRANSPORT": "relay", "CAMPANERO_EMAIL__RELAY__TLS": "none"}


def _relay_at(address: str, port: int) -> dict[str, str]:
    return RELAY | {"CAMPANERO_EMAIL__RELAY__HOST": address, "CAMPANERO_EMAIL__RELAY__PORT": str(port),
                    "CAMPANERO_EMAIL__CONNECT_TIMEOUT": "1s"}  # fmt: skip


def test_a_blocked_port_leads_to_an_open_one(fresh_server: FreshServer) -> None:
    """If the relay's port is blocked, the finding names the ports that can be reached and the settings to use."""
    address, port = "127.0.0.71", free_port()
    with blackholed_port(address, port), open_ports(address, 2525, 2587):
        server = fresh_server(env=_relay_at(address, port))
        began = time.monotonic()
        [finding] = run_doctor(server, expect=1)["outgoing ports"]
        seconds = time.monotonic() - began

    assert finding["level"] == "fail" and finding["fix"] == '[email.relay]\nport = 2525\ntls = "starttls"'
    assert "can be reached: 2525, 2587; cannot be reached: 25, 465, 587" in finding["words"]
    assert seconds < 20, "all ports are tried at the same time"


def test_no_open_port_leads_to_an_http_api(fresh_server: FreshServer) -> None:
    """If no SMTP port of the relay can be reached, the finding recommends an HTTP API."""
    server = fresh_server(env=_relay_at("127.0.0.72", free_port()))
    [finding] = run_doctor(server, expect=1)["outgoing ports"]
    assert finding["level"] == "fail" and finding["fix"].startswith("[email]\ntransport = ")
    assert "can be reached: none;" in finding["words"]


def test_an_open_port_is_ok(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """If the relay's port is open, the others do not matter; in test mode there is no finding."""
    [finding] = run_doctor(fresh_server(relay=smtp_server.port))["outgoing ports"]
    assert finding["level"] == "ok" and str(smtp_server.port) in finding["words"].partition(";")[0]
    assert "outgoing ports" not in run_doctor(fresh_server())


def test_stuck_messages_and_the_clock(fresh_server: FreshServer) -> None:
    """A message in progress for too long is a warning, and a clock that went back is a failure."""
    server = fresh_server()
    api = server.client()
    later = "2030-01-01T00:00:00Z"
    message = api.post("/messages", {"to": "a@example.org", "subject": "s", "body": "x", "send_at": later}).expect(201)
    assert levels(run_doctor(server), "queue") == {"queue": "ok"}
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.execute(
        "UPDATE message SET status = 'sending', updated_at = 1, claimed_by = 'x' WHERE id = ?", (message["id"],)
    )
    stuck = run_doctor(server)["queue"]
    connection.execute("UPDATE message SET updated_at = 4000000000000 WHERE id = ?", (message["id"],))
    connection.close()
    findings = run_doctor(server, expect=1)

    assert "in progress" in stuck[-1]["words"] and stuck[-1]["level"] == "warn"
    assert findings["clock"][0]["level"] == "fail" and "went back" in findings["clock"][0]["words"]


def test_the_seed_message_is_verified(bakery: tuple[Server, DnsServer]) -> None:
    """DKIM, SPF, DMARC and one-click of the seed are verified; it leaves only a test message."""
    server, dns = bakery
    findings = run_doctor(server, "--seed")
    [record] = [entry for entry in server.client().get("/domains").json[0]["dns_records"] if entry["purpose"] == "dkim"]
    other_key = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
    dns.set(record["name"], "TXT", f"v=DKIM1; p={other_key}")
    failing = run_doctor(server, "--seed", expect=1)

    assert levels(findings, "seed") == dict.fromkeys(
        ("seed", "seed DKIM", "seed SPF", "seed DMARC", "seed one-click"), "ok"
    )
    assert failing["seed DKIM"][0]["level"] == "fail" and "another" in failing["seed DKIM"][0]["words"]
    assert server.client().get("/capture").expect(200) == []
    assert {entry["test"] for entry in server.client().get("/messages").expect(200)} == {True}


def test_the_seed_message_needs_a_sender_and_a_service(fresh_server: FreshServer, dns: DnsServer) -> None:
    """Without a From address the seed is a warning without a proposed record; without a running service it fails."""
    server = fresh_server(env=dns.env)
    unsigned = run_doctor(server, "--seed")
    server.stop()
    stopped = run_doctor(server, "--seed", expect=1)

    assert unsigned["seed sender"][0]["level"] == "warn" and unsigned["seed one-click"][0]["level"] == "warn"
    assert not any(
        "campanero.invalid" in finding["fix"] for check_findings in unsigned.values() for finding in check_findings
    )
    assert stopped["seed"][0]["fix"] == "campanero serve"


def test_no_dns_record_with_a_local_address_is_proposed(fresh_server: FreshServer, dns: DnsServer) -> None:
    """Without a public base URL one finding names the records that wait for it, and the setting."""
    server = fresh_server(env=dns.env)
    domain = server.client().post("/domains", {"domain": {"name": "bakery.example"}}).expect(201)
    findings = run_doctor(server)["domain bakery.example"]
    [waiting] = [finding for finding in findings if "base_url" in finding["words"]]
    for name in ("MX bounce.bakery.example", "TXT bounce.bakery.example", "CNAME track.bakery.example"):
        assert name in waiting["words"]
    assert waiting["level"] == "warn" and waiting["fix"] == 'base_url = "https://mail.example.com"'
    assert not any(word in finding["fix"] for finding in findings for word in ("127.0.0.1", "localhost"))
    assert not any("127.0.0.1" in finding["value"] for finding in domain["dns_records"])
    assert {finding["purpose"] for finding in domain["dns_records"] if not finding["value"]} == {
        "return_path",
        "spf",
        "tracking",
    }
