"""The audit log page: entries in words, filters, its file, and access."""

import csv
import io
import json
import re

import pytest
from playwright.sync_api import Browser, expect

from tests.api.test_threats_pages import Visitor
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, PASSWORD, Server

SECRET = re.compile(r"camp_(live|test)_\w{20}|whsec_|\$argon2")


@pytest.fixture(scope="module")
def owner(server: Server) -> Visitor:
    """The owner after a few audited actions."""
    visitor = Visitor(server, EMAIL)
    visitor.send("POST", "/settings/keys", {"name": "Counter", "scope": "read"})
    visitor.send("POST", "/settings/team", {"email": "ann@example.org", "name": "Ann", "role": "editor"})
    for name in ("Spring", "=cmd()"):
        form_id = server.client().post("/forms", {"name": name}).expect(201)["id"]
        server.client().delete(f"/forms/{form_id}").expect(200)
    return visitor


def audit_rows(owner: Visitor, **query: str) -> list[dict[str, str]]:
    """Return the rows of the audit log's CSV file."""
    query_string = "&".join(f"{name}={value}" for name, value in query.items())
    response = owner.send("GET", f"/settings/audit/audit.csv?{query_string}")
    assert response.status == 200 and "attachment" in str(response.headers["Content-Disposition"])
    return list(csv.DictReader(io.StringIO(response.body.decode("utf-8-sig"))))


def test_audit_entries(owner: Visitor) -> None:
    """Entries show the action, the actor and the address; deleted objects keep their name, and no secret is shown."""
    page = owner.send("GET", "/settings/audit").text
    for text in ("Created an API key", "Counter", "Invited a team member", "Deleted a form", "Spring", "127.0.0.1"):
        assert text in page
    assert "Command line" in page and "API key test" in page
    assert not SECRET.search(page) and PASSWORD not in page


def test_audit_entries_in_words(server: Server, owner: Visitor) -> None:
    """Settings have the labels of their pages, and a sign-in says how; what is for programs is only in the file."""
    changes = {"email_reply_to": "team@example.org", "approval_by_another": True}
    server.client().patch("/account", changes).expect(200)
    words = owner.send("GET", "/settings/audit").text
    assert "Changed: Reply-to address, Require a different approver" in words
    assert "Signed in with a browser" in words
    for name in ("session_id", "session id", "email_reply_to", "approval_by_another"):
        assert name not in words, name
    recorded = "".join(row["data"] for row in audit_rows(owner))
    assert all(name in recorded for name in ("session_id", "email_reply_to", "approval_by_another"))


def test_saving_settings_without_a_change(server: Server, owner: Visitor) -> None:
    """Settings saved as they are make no entry, on each page of settings and through the API."""
    api = server.client()
    account = api.get("/account").expect(200)
    api.patch("/account", {"locale": account["locale"], "email_reply_to": "saved@example.org"}).expect(200)
    assert '"changed":["email_reply_to"]' in audit_rows(owner, action="account_update")[0]["data"]
    count = len(audit_rows(owner, action="account_update"))
    api.patch("/account", {"locale": account["locale"], "email_reply_to": "saved@example.org"}).expect(200)
    api.put("/brand", {"tone": "Warm"}).expect(200)
    api.put("/brand", {"tone": "Warm"}).expect(200)
    user = ScriptlessBrowser(server.client())
    for path in ("/settings", "/settings/consent", "/settings/sending", "/brand"):
        page = HtmlPage(user, path)
        for button in page.all("main button.primary", "Save"):
            page.press(button)
    assert len(audit_rows(owner, action="account_update")) == count
    changes = [row["data"] for row in audit_rows(owner, action="brand_update")]
    assert len([data for data in changes if "tone" in data]) == 1, changes
    assert audit_rows(owner, action="settings_update") == []


def test_audit_filters(owner: Visitor) -> None:
    """The filters apply to page and file, and days are inclusive; an invalid day is ignored."""
    created = audit_rows(owner, action="form_add")
    assert [row["action"] for row in created] == ["form_add"] * 2
    assert {row["actor"] for row in created} == {"key:1"} and {row["actor_name"] for row in created} == {"test"}
    subject_rows = audit_rows(owner, subject=created[0]["subject"])
    assert [row["action"] for row in subject_rows] == ["form_delete", "form_add"]
    today = created[0]["created_at"][:10]
    assert audit_rows(owner, action="form_add", **{"from": today, "to": today}) == created
    assert audit_rows(owner, action="form_add", to="1999-01-01") == []
    assert audit_rows(owner, action="form_add", to="never") == created
    assert "No matching entries" in owner.send("GET", "/settings/audit?action=nothing").text


def test_audit_exports_are_audited_and_safe(owner: Visitor) -> None:
    """Downloading the file is an entry itself, and no cell begins like a formula."""
    audit_rows(owner, action="form_add")
    newest = audit_rows(owner)[1]
    assert (newest["action"], newest["actor"]) == ("export", "user:1") and "audit.csv" in newest["data"]
    assert json.loads(newest["data"])["rows"] == 2
    assert not [cell for row in audit_rows(owner) for cell in row.values() if cell.startswith(("=", "+", "@"))]


def test_access_to_the_audit_log(server: Server, owner: Visitor) -> None:
    """An editor gets a 403 for page and file, and no link to them."""
    server.cli("user", "add", "--email", "eve@example.org", "--role", "editor", stdin=f"{PASSWORD}\n")
    eve = Visitor(server, "eve@example.org")
    assert [eve.send("GET", f"/settings/audit{path}").status for path in ("", "/audit.csv")] == [403, 403]
    assert "/settings/audit" not in eve.send("GET", "/settings/you").text
    assert "/settings/audit" in owner.send("GET", "/settings/you").text


def test_the_audit_page_with_and_without_javascript(browser: Browser, server: Server, owner: Visitor) -> None:
    """Filters apply at once, or by a button without JavaScript; the page is accessible and fits a phone."""
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems))
    page.goto("/settings/audit")
    page.get_by_label("Action", exact=True).select_option("form_delete")
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    expect(page).to_have_url(re.compile("action=form_delete"))
    assert find_violations_in_light_and_dark(page) == []
    page.set_viewport_size({"width": 320, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    # Dates have room beside their labels, and an entry of the command line, without an IP address, no line for it.
    assert all(field.bounding_box()["width"] > 200 for field in page.locator(".days input").all())  # type: ignore[index]  # visible
    page.goto("/settings/audit")
    entry = page.locator("#rows tr", has_text="Command line").first
    expect(entry.locator("td").last).to_be_hidden()
    page.goto("/settings/audit?action=form_delete")
    page.get_by_role("link", name="Spring").first.click()
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    page.context.close()
    assert not problems.found
    plain = owner.send("GET", "/settings/audit?action=form_add&from=&to=").text
    assert plain.count("Created a form</span>") == 2 and "<noscript>" in plain
