"""The pages of sending domains, with and without JavaScript."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, new_page, new_scriptless_context, sign_in
from tests.kit.dns import DnsServer
from tests.kit.server import PASSWORD, Server


@pytest.fixture(scope="module")
def server_and_dns() -> Iterator[tuple[Server, DnsServer]]:
    """A server and its DNS server."""
    # The host name of its mail server is public, that of its links is not
    name = {"CAMPANERO_EMAIL__DIRECT__HELO": "mail.us.example"}
    with DnsServer() as dns, Server(env={**dns.env, **name}).set_up() as server:
        yield server, dns
        server.stop()


@pytest.fixture
def no_js_page(browser: Browser, server_and_dns: tuple[Server, DnsServer]) -> Iterator[Page]:
    """A signed-in page without JavaScript."""
    context = new_scriptless_context(browser, server_and_dns[0].url)
    yield sign_in(context.new_page())
    context.close()


def test_verifying_a_domain_without_javascript(no_js_page: Page, server_and_dns: tuple[Server, DnsServer]) -> None:
    """A domain is added, its records are shown and verified; faults are shown at the field or record."""
    server, dns = server_and_dns
    no_js_page.goto("/settings/domains")
    expect(no_js_page.get_by_role("heading", name="No domains yet")).to_be_visible()
    no_js_page.get_by_role("link", name="Add domain").click()
    for value, message in (
        ("", "Enter a domain"),
        ("https://x", "only the domain name"),
        ("gmail.com", "mailbox provider"),
    ):
        no_js_page.get_by_label("Domain").fill(value)
        no_js_page.get_by_role("button", name="Add domain").click()
        expect(no_js_page.locator(".err")).to_contain_text(message)
    no_js_page.get_by_label("Domain").fill("Bäckerei.example")
    no_js_page.get_by_role("button", name="Add domain").click()
    expect(no_js_page.get_by_role("heading", level=1)).to_have_text("bäckerei.example")
    (domain,) = server.client().get("/domains").expect(200)
    texts = no_js_page.locator("dd code").all_inner_texts()
    assert {record[name] for record in domain["dns_records"] for name in ("name", "value") if record[name]} <= set(
        texts
    )
    assert [record["purpose"] for record in domain["dns_records"] if not record["value"]] == ["tracking"]
    assert not any("127.0.0.1" in text for text in texts if text != "127.0.0.1")
    expect(no_js_page.get_by_text("which DNS cannot point to: set it to a public host name")).to_be_visible()
    zone = no_js_page.get_by_label("All records, for DNS providers that import a zone file").input_value().splitlines()
    assert len(zone) == 5 and zone[2] == "bounce.xn--bckerei-5wa.example. 3600 IN MX 10 mail.us.example."
    expect(no_js_page.locator(".pill", has_text="Not checked yet")).to_have_count(5)
    expect(no_js_page.locator(".pill", has_text="Needs a public address")).to_have_count(1)

    dns.publish(domain)
    dns.set(domain["dns_records"][0]["name"], "TXT", "campanero-verification=<b>other</b>")
    no_js_page.get_by_role("button", name="Verify now").click()
    expect(no_js_page.get_by_text("campanero-verification=<b>other</b>")).to_be_visible()
    expect(no_js_page.locator(".pill", has_text="Wrong value")).to_have_count(1)
    dns.publish(domain)
    no_js_page.get_by_role("button", name="Verify now").click()
    expect(no_js_page.get_by_text("You can send from addresses that end in @bäckerei.example.")).to_be_visible()
    expect(no_js_page.locator(".pill", has_text="Found")).to_have_count(5)
    no_js_page.goto("/settings/domains")
    expect(no_js_page.get_by_role("row", name="bäckerei.example")).to_contain_text("Verified")


def test_rotating_a_key_and_deleting_a_domain(browser: Browser, server_and_dns: tuple[Server, DnsServer]) -> None:
    """Both ask first; a warning shows missing records, and a domain in use cannot be deleted."""
    server, dns = server_and_dns
    api = server.client()
    domain = api.post("/domains", {"domain": {"name": "mill.example"}}).expect(201)
    dns.publish(domain)
    api.post(f"/domains/{domain['id']}/verify").expect(200)
    dns.remove("_campanero.mill.example")
    api.post(f"/domains/{domain['id']}/verify").expect(200)
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/settings/domains/{domain['id']}")
    expect(page.locator(".banner", has_text="there is no TXT record yet")).to_contain_text(
        "three failed checks in a row"
    )
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Rotate DKIM key").click()
    page.get_by_role("dialog").get_by_role("button", name="Create new key").click()
    expect(page.get_by_role("heading", name="Next DKIM key")).to_be_visible()

    body = {"name": "Later", "scheduled_at": "2099-01-01T09:00:00Z", "trigger_attributes": {"contact_list_id": 1}}
    api.post("/lists", {"name": "Few"}).expect(201)
    content = {"subject": "s", "body": "<p>x</p>", "from_email": "us@mill.example"}
    campaign_id = api.post("/campaigns", body | {"template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    for is_last_try in (False, True):
        page.get_by_role("button", name="More actions").click()
        page.get_by_role("button", name="Delete domain").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete domain").click()
        if not is_last_try:
            expect(page.get_by_role("alert")).to_contain_text("campaigns use this domain: Later")
            api.post(f"/campaigns/{campaign_id}/cancel").expect(200)
    expect(page.locator(".toast")).to_contain_text("mill.example deleted.")
    page.context.close()
    assert problems.found == []


def test_a_viewer_reads_domains(browser: Browser, server_and_dns: tuple[Server, DnsServer]) -> None:
    """A viewer sees the records and no buttons."""
    server, _ = server_and_dns
    domain = server.client().post("/domains", {"domain": {"name": "seen.example"}}).expect(201)
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems), "viewer@example.org")
    page.goto(f"/settings/domains/{domain['id']}")
    expect(page.get_by_text("_dmarc.seen.example", exact=True)).to_be_visible()
    for name in ("Verify now", "Rotate DKIM key", "Delete domain"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.context.close()
    assert problems.found == []
