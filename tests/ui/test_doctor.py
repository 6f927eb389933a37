"""The Health page: the doctor's findings, who may run it, and that it blocks no other page."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Page, expect

from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.dns import DnsServer
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.timeouts import extend_timeout
from tests.ui.test_roles import request_page, session_cookie
from ui import view


def test_running_the_checks(browser_page: Page, server: Server) -> None:
    """The checks are run by a button and listed with the worst first; a heading sums them up."""
    browser_page.goto("/settings")
    browser_page.get_by_role("link", name="Health").click()
    assert not browser_page.get_by_label("Also send a test message").is_checked()
    browser_page.get_by_role("button", name="Run checks").click(no_wait_after=True)
    browser_page.locator("#findings").wait_for(timeout=60_000)
    lines = browser_page.locator("#findings li").all_inner_texts()

    assert len(lines) >= 12
    for title in (
        "Storage space", "Clock of the server", "Messages waiting to be sent", "Access by browser", "Sending email",
        "Links in emails", "Numbers in reports",
    ):  # fmt: skip
        [line] = [line for line in lines if line.startswith(f"{title}\n")]
        assert re.match(rf"{title}\n+[A-Z][^\n]+\.[^\n]*\n+For your administrator: ", line), line
    findings = json.loads(server.cli("doctor", "--json", "--account", "1").stdout)["findings"]
    # Findings with the same meaning are one entry.
    entries = {(finding["level"], finding["title"], finding["meaning"]) for finding in findings}
    warnings, notes = ([entry[0] for entry in entries].count(level) for level in ("warn", "note"))
    header = browser_page.locator("#findings header")
    expect(header).to_contain_text(f"{warnings} warning" if warnings else "No problems found")
    expect(header).to_contain_text(f"{notes} notes")
    expect(header.locator(".pill")).to_have_text("Needs attention" if warnings else "OK")
    marks = browser_page.locator("#findings li svg[aria-label]").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label')).filter(one => one !== 'Copy')"
    )
    # None yet: no good news on a new installation, and no fault either
    for title in ("Backups", "Sending domain", "Links in emails"):
        line = browser_page.locator("#findings li").filter(has=browser_page.get_by_role("heading", name=title))
        expect(line.locator("svg").first).to_have_attribute("aria-label", "Advice")
    browser_page.locator("#findings").get_by_role("link", name="Open Domains").click()
    expect(browser_page).to_have_url(re.compile(r"/settings/domains$"))
    assert marks == sorted(marks, key=["Problem", "Warning", "Advice", "OK"].index)


@pytest.mark.full
def test_access_to_the_health_page(fresh_server: FreshServer) -> None:
    """A viewer sees the page but cannot run checks, and findings do not name other accounts."""
    server = fresh_server()
    server.client().patch("/account", {"email_from_email": "ana@bakery.example"}).expect(200)
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    other = server.cli("account", "add", "Other").stdout.strip()
    server.cli("user", "add", "--email", "other@example.org", "--account", other, stdin=PASSWORD + "\n")
    viewer = session_cookie(server, "viewer@example.org")
    assert request_page(server, "GET", "/settings/doctor", viewer)[0] == 200
    assert request_page(server, "POST", "/settings/doctor", viewer)[0] == 403
    ours = server.cli("doctor", "--json", "--account", "1").stdout
    theirs = server.cli("doctor", "--json", "--account", other).stdout

    assert "ana@bakery.example" in ours and "bakery.example" not in theirs


def test_other_accounts_see_no_details_of_the_installation(fresh_server: FreshServer) -> None:
    """Owners of other accounts see the checks of their account, and of the installation only which ones failed."""
    server = fresh_server()
    other = server.cli("account", "add", "Other").stdout.strip()
    server.cli("user", "add", "--email", "other@example.org", "--account", other, stdin=PASSWORD + "\n")
    (server.data / "imports").mkdir(exist_ok=True)  # the service may not have created it yet
    (server.data / "imports").chmod(0o755)
    emails = (EMAIL, "other@example.org")
    pages = {email: Visitor(server, email).send("POST", "/settings/doctor").text for email in emails}
    for text in (str(server.data), f"127.0.0.1:{server.port}", "Clock of the server", "Encryption key"):
        assert [text in page for page in pages.values()] == [True, False], text
    assert "which the health check of the first account describes" in pages["other@example.org"]
    assert all("Numbers in reports" in page for page in pages.values())


@pytest.mark.full
def test_slow_checks_do_not_delay_other_pages(fresh_server: FreshServer, dns: DnsServer) -> None:
    """While DNS delays the doctor, other pages respond quickly."""
    server = fresh_server(env=dns.env)
    domain = server.client().post("/domains", {"domain": {"name": "slow.example"}}).expect(201)
    cookie = session_cookie(server, "owner@example.com")
    for record in domain["dns_records"]:
        dns.silence(record["name"])
    with ThreadPoolExecutor(1) as pool:
        checks = pool.submit(request_page, server, "POST", "/settings/doctor", cookie)
        started, response_count = time.monotonic(), 0
        while not checks.done() and response_count < 20:
            assert request_page(server, "GET", "/settings", cookie)[0] == 200
            response_count += 1
        seconds = time.monotonic() - started
        assert checks.result()[0] == 200

    assert response_count >= 2 and seconds / response_count < extend_timeout(2)


@pytest.mark.full
@pytest.mark.parametrize(
    ("levels", "pill", "heading"),
    [
        (["ok"], "OK", "No problems found"),
        (["ok", "warn"], "Needs attention", "1 warning: Title 1"),
        (["ok", *["warn"] * 8], "Needs attention", "8 warnings"),
        (["ok", "fail"], "Action required", "1 problem: Title 1"),
        (["ok", "warn", "fail"], "Action required", "1 problem, 1 warning"),
    ],
)
def test_the_heading_of_the_findings(levels: list[str], pill: str, heading: str) -> None:
    """The heading counts problems and warnings, the worst level is the status, and a single finding is named."""
    findings = [
        {"level": level, "check": "disk", "words": "x", "fix": "", "title": f"Title {index}", "meaning": "What."}
        for index, level in enumerate(levels)
    ]
    template = view.template_environment().get_template("settings/doctor.html")
    shown = "".join(template.blocks["findings"](template.new_context({"findings": findings, "now": 0})))
    match = re.search(r"<h2>(.*?)</h2>", shown, re.S)
    assert match is not None and re.sub("<[^>]+>", "", match[1]) == heading
    assert ('href="#finding-1"' in match[1]) == (len(levels) == 2)
    assert f">{pill}<" in re.sub(r">\s+|\s+<", lambda space: space[0].strip(), shown)


def test_findings_of_one_cause_are_one_entry() -> None:
    """Findings with the same title and meaning, such as the DNS records of a domain, say the meaning once."""
    findings = [
        {"level": "warn", "check": "domain", "words": words, "fix": "", "title": "Domain", "meaning": "A record fails."}
        for words in ("TXT one", "TXT two", "TXT three")
    ]
    template = view.template_environment().get_template("settings/doctor.html")
    shown = "".join(template.blocks["findings"](template.new_context({"findings": findings, "now": 0})))
    assert shown.count("A record fails.") == 1
    assert all(finding["words"] in shown for finding in findings)
    assert "1 warning" in shown
