"""The page Health: what the doctor finds, for those who may know, without anybody else waiting."""

import time
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Page

from tests.conftest import FreshServer
from tests.kit.dns import DnsServer
from tests.kit.patience import soon
from tests.kit.server import PASSWORD, Server
from tests.ui.test_roles import ask, signed_in


def test_findings(browser_page: Page, server: Server) -> None:
    """Somebody asks, and gets each finding with its mark, the worst first."""
    browser_page.goto("/settings")
    browser_page.get_by_role("link", name="Health").click()
    assert not browser_page.get_by_label("Send a seed too").is_checked()
    browser_page.get_by_role("button", name="Look it over").click(no_wait_after=True)
    browser_page.locator("#findings").wait_for(timeout=60_000)
    shown = browser_page.locator("#findings li").all_inner_texts()

    assert len(shown) >= 12
    for check in ("disk", "clock", "queue", "listen", "way out", "links", "books"):
        assert any(one.startswith(check) for one in shown), check
    marks = browser_page.locator("#findings li svg[aria-label]").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label')).filter(one => one !== 'Copy')"
    )
    assert marks == sorted(marks, key=["Does not work", "Look at it", "ok"].index)


def test_who_may_know(fresh_server: FreshServer) -> None:
    """Findings name servers and settings: a viewer sees the page and cannot ask; nobody learns of other accounts."""
    server = fresh_server()
    server.client().patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    other = server.cli("account", "add", "Other").stdout.strip()
    server.cli("user", "add", "--email", "other@example.org", "--account", other, stdin=PASSWORD + "\n")
    viewer = signed_in(server, "viewer@example.org")
    assert ask(server, "GET", "/settings/doctor", viewer)[0] == 200
    assert ask(server, "POST", "/settings/doctor", viewer)[0] == 403
    ours = server.cli("doctor", "--json", "--account", "1").stdout
    theirs = server.cli("doctor", "--json", "--account", other).stdout

    assert "ana@bakery.example" in ours and "bakery.example" not in theirs


def test_nobody_waits_for_it(fresh_server: FreshServer, dns: DnsServer) -> None:
    """While DNS keeps the doctor waiting, other pages answer at once."""
    server = fresh_server(env=dns.env)
    made = server.client().post("/domains", {"domain": {"name": "slow.example"}}).expect(201)
    cookie = signed_in(server, "owner@example.com")
    for record in made["dns_records"]:
        dns.silence(record["name"])
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(ask, server, "POST", "/settings/doctor", cookie)
        begun, answered = time.monotonic(), 0
        while not looking.done() and answered < 20:
            assert ask(server, "GET", "/settings", cookie)[0] == 200
            answered += 1
        took = time.monotonic() - begun
        assert looking.result()[0] == 200

    assert answered >= 2 and took / answered < soon(2)
