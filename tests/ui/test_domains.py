"""Sending domains in a browser, with and without its scripts."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.dns import DnsServer
from tests.kit.server import PASSWORD, Server


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Server, DnsServer]]:
    """A server, and the DNS it asks."""
    # The name of its mail server is public, that of its links is not
    name = {"CAMPANERO_EMAIL__DIRECT__HELO": "mail.us.example"}
    with DnsServer() as dns, Server(env={**dns.env, **name}).set_up() as server:
        yield server, dns
        server.stop()


@pytest.fixture
def bare(browser: Browser, world: tuple[Server, DnsServer]) -> Iterator[Page]:
    """The owner at a browser without JavaScript."""
    context = browser.new_context(base_url=world[0].url, java_script_enabled=False)
    context.set_default_timeout(30_000)
    yield sign_in(context.new_page())
    context.close()


def test_a_domain_from_empty_to_verified_without_scripts(bare: Page, world: tuple[Server, DnsServer]) -> None:
    """Add it, read its records as text, enter them, look up, and read that mail may be from it; then delete it."""
    server, dns = world
    bare.goto("/settings/domains")
    expect(bare.get_by_role("heading", name="No domains yet")).to_be_visible()
    bare.get_by_role("link", name="Add domain").click()
    for typed, words in (("", "Write the domain"), ("https://x", "only the name"), ("gmail.com", "mailbox provider")):
        bare.get_by_label("Domain").fill(typed)
        bare.get_by_role("button", name="Add domain").click()
        expect(bare.locator(".err")).to_contain_text(words)
    bare.get_by_label("Domain").fill("Bäckerei.example")
    bare.get_by_role("button", name="Add domain").click()
    expect(bare.get_by_role("heading", level=1)).to_have_text("bäckerei.example")
    (made,) = server.client().get("/domains").expect(200)
    texts = bare.locator("dd code").all_inner_texts()
    assert {one[name] for one in made["dns_records"] for name in ("name", "value") if one[name]} <= set(texts)
    assert [one["purpose"] for one in made["dns_records"] if not one["value"]] == ["tracking"]
    assert not any("127.0.0.1" in text for text in texts if text != "127.0.0.1")
    expect(bare.get_by_text("which DNS cannot point to: set it to a public host name")).to_be_visible()
    zone = bare.get_by_label("For who edits DNS as text").input_value().splitlines()
    assert len(zone) == 5 and zone[2] == "bounce.xn--bckerei-5wa.example. 3600 IN MX 10 mail.us.example."
    assert bare.locator(".pill", has_text="Not looked up yet").count() == 5
    expect(bare.locator(".pill", has_text="Needs a public address")).to_have_count(1)

    dns.publish(made)
    dns.set(made["dns_records"][0]["name"], "TXT", "campanero-verification=<b>other</b>")
    bare.get_by_role("button", name="Verify now").click()
    expect(bare.get_by_text("campanero-verification=<b>other</b>")).to_be_visible()
    expect(bare.locator(".pill", has_text="Wrong")).to_have_count(1)
    dns.publish(made)
    bare.get_by_role("button", name="Verify now").click()
    expect(bare.get_by_text("Mail may be from addresses that end in @bäckerei.example.")).to_be_visible()
    expect(bare.locator(".pill", has_text="Found")).to_have_count(5)
    bare.goto("/settings/domains")
    expect(bare.get_by_role("row", name="bäckerei.example")).to_contain_text("Verified")


def test_a_key_is_changed_and_a_domain_deleted(browser: Browser, world: tuple[Server, DnsServer]) -> None:
    """Both ask first; trouble stands above the records; a domain that a campaign needs stays, with its reason."""
    server, dns = world
    api = server.client()
    made = api.post("/domains", {"domain": {"name": "mill.example"}}).expect(201)
    dns.publish(made)
    api.post(f"/domains/{made['id']}/verify").expect(200)
    dns.remove("_campanero.mill.example")
    api.post(f"/domains/{made['id']}/verify").expect(200)
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/settings/domains/{made['id']}")
    expect(page.locator(".banner", has_text="there is no TXT record yet")).to_contain_text("three look-ups in a row")
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Change the key").click()
    page.get_by_role("dialog").get_by_role("button", name="Make a new key").click()
    expect(page.get_by_role("heading", name="Signs your mail next")).to_be_visible()

    body = {"name": "Later", "scheduled_at": "2099-01-01T09:00:00Z", "trigger_attributes": {"contact_list_id": 1}}
    api.post("/lists", {"name": "Few"}).expect(201)
    content = {"subject": "s", "body": "<p>x</p>", "from_email": "us@mill.example"}
    later = api.post("/campaigns", body | {"template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{later}/send").expect(200)
    for gone in (False, True):
        page.get_by_role("button", name="More actions").click()
        page.get_by_role("button", name="Delete domain").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete domain").click()
        if not gone:
            expect(page.get_by_role("alert")).to_contain_text("are from this domain: Later")
            api.post(f"/campaigns/{later}/cancel").expect(200)
    expect(page.locator(".toast")).to_contain_text("mill.example is deleted.")
    page.context.close()
    assert problems.found == []


def test_who_may_not_change_domains_reads_them(browser: Browser, world: tuple[Server, DnsServer]) -> None:
    """A viewer sees the records and no buttons."""
    server, _ = world
    made = server.client().post("/domains", {"domain": {"name": "seen.example"}}).expect(201)
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems), "viewer@example.org")
    page.goto(f"/settings/domains/{made['id']}")
    expect(page.get_by_text("_dmarc.seen.example", exact=True)).to_be_visible()
    for name in ("Verify now", "Change the key", "Delete domain"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.context.close()
    assert problems.found == []
