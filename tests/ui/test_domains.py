"""The pages of sending domains, which need no JavaScript."""

from collections.abc import Iterator

import pytest

from tests.kit.dns import DnsServer
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server


@pytest.fixture(scope="module")
def server_and_dns() -> Iterator[tuple[Server, DnsServer]]:
    """A server and its DNS server."""
    # The host name of its mail server is public, that of its links is not
    name = {"CAMPANERO_EMAIL__DIRECT__HELO": "mail.us.example"}
    with DnsServer() as dns, Server(env={**dns.env, **name}).set_up() as server:
        yield server, dns
        server.stop()


def test_verifying_a_domain_without_javascript(server_and_dns: tuple[Server, DnsServer]) -> None:
    """A domain is added, its records are shown and verified; faults are shown at the field or record."""
    server, dns = server_and_dns
    page = HtmlPage(ScriptlessBrowser(server.client()), "/settings/domains")
    assert page.has("h2, h3", "No domains yet")
    page = page.follow("Add domain")
    for value, message in (
        ("", "Enter a domain"),
        ("https://x", "only the domain name"),
        ("gmail.com", "mailbox provider"),
    ):
        page.fill("Domain", value)
        page = page.press("Add domain")
        assert message in text_of(page.one(".err"))
    page.fill("Domain", "Bäckerei.example")
    page = page.press("Add domain")
    assert page.title == "bäckerei.example"
    (domain,) = server.client().get("/domains").expect(200)
    texts = page.texts("dd code")
    assert {record[name] for record in domain["dns_records"] for name in ("name", "value") if record[name]} <= set(
        texts
    )
    assert [record["purpose"] for record in domain["dns_records"] if not record["value"]] == ["tracking"]
    assert not any("127.0.0.1" in text for text in texts if text != "127.0.0.1")
    assert "Needs a public address, see above." in page.text
    zone = page.value("All records, for DNS providers that import a zone file").splitlines()
    assert len(zone) == 5 and zone[2] == "bounce.xn--bckerei-5wa.example. 3600 IN MX 10 mail.us.example."
    assert len(page.all(".pill", "Not checked yet")) == 5
    assert len(page.all(".pill", "Needs a public address")) == 1

    dns.publish(domain)
    dns.set(domain["dns_records"][0]["name"], "TXT", "campanero-verification=<b>other</b>")
    page = page.press("Verify now")
    assert "campanero-verification=<b>other</b>" in page.text
    assert len(page.all(".pill", "Wrong value")) == 1
    dns.publish(domain)
    page = page.press("Verify now")
    assert "You can send from addresses that end in @bäckerei.example." in page.text
    assert len(page.all(".pill", "Found")) == 5
    assert "Verified" in text_of(HtmlPage(page.user, "/settings/domains").one("tbody tr", "bäckerei.example"))


def test_rotating_a_key_and_deleting_a_domain(server_and_dns: tuple[Server, DnsServer]) -> None:
    """Both ask first; a warning shows missing records, and a domain in use cannot be deleted."""
    server, dns = server_and_dns
    api = server.client()
    domain = api.post("/domains", {"domain": {"name": "mill.example"}}).expect(201)
    dns.publish(domain)
    api.post(f"/domains/{domain['id']}/verify").expect(200)
    dns.remove("_campanero.mill.example")
    api.post(f"/domains/{domain['id']}/verify").expect(200)
    page = HtmlPage(ScriptlessBrowser(api), f"/settings/domains/{domain['id']}")
    [banner] = page.all(".banner", "there is no TXT record yet")
    assert "three failed checks in a row" in text_of(banner)
    page = page.press("Create new key")
    assert page.has("h2, h3", "Next DKIM key")

    body = {"name": "Later", "scheduled_at": "2099-01-01T09:00:00Z", "trigger_attributes": {"contact_list_id": 1}}
    api.post("/lists", {"name": "Few"}).expect(201)
    content = {"subject": "s", "body": "<p>x</p>", "from_email": "us@mill.example"}
    campaign_id = api.post("/campaigns", body | {"template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    page = page.press("Delete domain")
    assert page.has("[role=alert]", "campaigns use this domain: Later")
    api.post(f"/campaigns/{campaign_id}/cancel").expect(200)
    assert page.press("Delete domain").has(".toast", "mill.example deleted.")


def test_a_viewer_reads_domains(server_and_dns: tuple[Server, DnsServer]) -> None:
    """A viewer sees the records and no buttons."""
    server, _ = server_and_dns
    domain = server.client().post("/domains", {"domain": {"name": "seen.example"}}).expect(201)
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    page = HtmlPage(ScriptlessBrowser(server.client(), "viewer@example.org"), f"/settings/domains/{domain['id']}")
    assert "_dmarc.seen.example" in page.texts("dd code")
    for name in ("Verify now", "Rotate DKIM key", "Delete domain"):
        assert page.named("button", name) == []
