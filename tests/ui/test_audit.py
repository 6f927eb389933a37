"""The audit as owners and admins look it over: who did what, narrowed, as a file, and for nobody else."""

import csv
import io
import json
import re

import pytest
from playwright.sync_api import Browser, expect

from tests.api.test_threats_pages import Visitor
from tests.kit.axe import faults_in_both_looks
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.server import EMAIL, PASSWORD, Server

SECRET = re.compile(r"camp_(live|test)_\w{20}|whsec_|\$argon2")


@pytest.fixture(scope="module")
def owner(server: Server) -> Visitor:
    """The owner, who has done a few things."""
    found = Visitor(server, EMAIL)
    found.send("POST", "/settings/keys", {"name": "Counter", "scope": "read"})
    found.send("POST", "/settings/team", {"email": "ann@example.org", "name": "Ann", "role": "editor"})
    for word in ("Spring", "=cmd()"):
        made = server.client().post("/forms", {"name": word}).expect(201)["id"]
        server.client().delete(f"/forms/{made}").expect(200)
    return found


def rows_of(owner: Visitor, **query: str) -> list[dict[str, str]]:
    """Return the rows of the file that the page offers."""
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    answer = owner.send("GET", f"/settings/audit/audit.csv?{asked}")
    assert answer.status == 200 and "attachment" in str(answer.headers["Content-Disposition"])
    return list(csv.DictReader(io.StringIO(answer.body.decode("utf-8-sig"))))


def test_what_was_done_is_told_in_words(owner: Visitor) -> None:
    """Each act stands with who did it, from where and when; what was deleted keeps its name, and nothing is secret."""
    page = owner.send("GET", "/settings/audit").text
    for words in ("Made an API key", "Counter", "Added a person to the team", "Deleted a form", "Spring", "127.0.0.1"):
        assert words in page
    assert "The command line" in page and "Key test" in page
    assert not SECRET.search(page) and PASSWORD not in page


def test_it_is_narrowed_by_who_what_and_when(owner: Visitor) -> None:
    """The filters of the page count for its file too, the last day to its end; an unknown day is no filter."""
    made = rows_of(owner, action="form_add")
    assert [row["action"] for row in made] == ["form_add"] * 2
    assert {row["actor"] for row in made} == {"key:1"} and {row["actor_name"] for row in made} == {"test"}
    about = rows_of(owner, subject=made[0]["subject"])
    assert [row["action"] for row in about] == ["form_delete", "form_add"]
    today = made[0]["created_at"][:10]
    assert rows_of(owner, action="form_add", **{"from": today, "to": today}) == made
    assert rows_of(owner, action="form_add", to="1999-01-01") == []
    assert rows_of(owner, action="form_add", to="never") == made
    assert "None of these" in owner.send("GET", "/settings/audit?action=nothing").text


def test_a_file_of_it_is_noted_and_no_formula(owner: Visitor) -> None:
    """Whoever takes the audit along is in it; a name that a spreadsheet would run is inside of JSON."""
    rows_of(owner, action="form_add")
    newest = rows_of(owner)[1]
    assert (newest["action"], newest["actor"]) == ("export", "user:1") and "audit.csv" in newest["data"]
    assert json.loads(newest["data"])["rows"] == 2
    assert not [cell for row in rows_of(owner) for cell in row.values() if cell.startswith(("=", "+", "@"))]


def test_owners_and_admins_alone_see_it(server: Server, owner: Visitor) -> None:
    """An editor is refused the page and the file, and is shown no way there."""
    server.cli("user", "add", "--email", "eve@example.org", "--role", "editor", stdin=f"{PASSWORD}\n")
    eve = Visitor(server, "eve@example.org")
    assert [eve.send("GET", f"/settings/audit{path}").status for path in ("", "/audit.csv")] == [403, 403]
    assert "/settings/audit" not in eve.send("GET", "/settings/you").text
    assert "/settings/audit" in owner.send("GET", "/settings/you").text


def test_it_is_sound_with_and_without_javascript(browser: Browser, server: Server, owner: Visitor) -> None:
    """Axe finds nothing in either look, on a phone too; a choice narrows at once, or by a button without JavaScript."""
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems))
    page.goto("/settings/audit")
    page.get_by_label("What", exact=True).select_option("form_delete")
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    expect(page).to_have_url(re.compile("action=form_delete"))
    assert faults_in_both_looks(page) == []
    page.set_viewport_size({"width": 320, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.get_by_role("link", name="form 1").first.click()
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    page.context.close()
    assert not problems.found
    plain = owner.send("GET", "/settings/audit?action=form_add&from=&to=").text
    assert plain.count("Made a form</span>") == 2 and "<noscript>" in plain
