"""The page Health: what the doctor finds, for those who may know, without anybody else waiting."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import FreshServer
from tests.kit.dns import DnsServer
from tests.kit.patience import soon
from tests.kit.server import PASSWORD, Server
from tests.ui.test_roles import ask, signed_in
from ui import view


def test_findings(browser_page: Page, server: Server) -> None:
    """Somebody asks, and gets each finding with its mark, the worst first."""
    browser_page.goto("/settings")
    browser_page.get_by_role("link", name="Health").click()
    assert not browser_page.get_by_label("Also send a test message").is_checked()
    browser_page.get_by_role("button", name="Run checks").click(no_wait_after=True)
    browser_page.locator("#findings").wait_for(timeout=60_000)
    shown = browser_page.locator("#findings li").all_inner_texts()

    assert len(shown) >= 12
    for check in ("disk", "clock", "queue", "listen", "email transport", "links", "ledger"):
        assert any(one.startswith(check) for one in shown), check
    levels = [one["level"] for one in json.loads(server.cli("doctor", "--json", "--account", "1").stdout)["findings"]]
    warnings = levels.count("warn")
    header = browser_page.locator("#findings header")
    expect(header).to_contain_text(f"{warnings} warning" if warnings else "No problems found")
    expect(header.locator(".pill")).to_have_text("Needs attention" if warnings else "Works")
    marks = browser_page.locator("#findings li svg[aria-label]").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label')).filter(one => one !== 'Copy')"
    )
    assert marks == sorted(marks, key=["Problem", "Warning", "ok"].index)


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


@pytest.mark.parametrize(
    ("levels", "pill", "heading"),
    [
        (["ok"], "Works", "No problems found"),
        (["ok", *["warn"] * 8], "Needs attention", "8 warnings"),
        (["ok", "warn", "fail"], "Does not work", "1 problem, 1 warning"),
    ],
)
def test_the_heading_is_the_worst_finding(levels: list[str], pill: str, heading: str) -> None:
    """It works only where nothing warns; else it says how many problems and warnings there are."""
    found = [{"level": one, "check": "disk", "words": "x", "fix": ""} for one in levels]
    template = view.template_environment().get_template("settings/doctor.html")
    shown = "".join(template.blocks["findings"](template.new_context({"findings": found})))
    assert f">{pill}<" in re.sub(r">\s+|\s+<", lambda one: one[0].strip(), shown) and f"<h2>{heading}</h2>" in shown
