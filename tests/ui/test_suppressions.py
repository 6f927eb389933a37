"""The suppression list pages: searching, adding and lifting suppressions."""

from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server


def test_adding_and_lifting_a_suppression(user: ScriptlessBrowser, api: Client) -> None:
    """An address is suppressed with a note, found by a part of it, and lifted with a reason."""
    contact = api.post("/contacts", {"email": "never@example.org", "first_name": "Nora"}).expect(201)
    page = HtmlPage(user, "/contacts").follow("Suppression list")
    assert page.has("h1, h2", "No suppressed addresses")

    page = page.follow("Add address")
    page.fill("Email or phone", "no address")
    page.fill("Note", "Asked on the phone, 3 May")
    page = page.press("Suppress address")
    assert page.all("#f-address-err") and page.value("Note") == "Asked on the phone, 3 May"
    page.fill("Email or phone", "Never@example.org")
    page = page.press("Suppress address")
    assert page.title == "Never@example.org"
    assert page.has("main", "Subscribed") and page.has("main", "Added to the suppression list")
    assert api.get(f"/contacts/{contact['id']}").expect(200)["channels"][0]["suppression_reason"] == "manual"

    for number in range(8):
        reason = ("hard_bounce", "complaint", "soft_bounce")[number % 3]
        body = {"address": f"p{number}@example.net", "reason": reason, "diagnostic": "550 5.1.1 no such user here"}
        api.post("/suppressions", body).expect(201)
    page = HtmlPage(user, "/contacts/suppressions")
    assert len(page.all("tbody tr")) == 9
    page = page.follow("Spam complaint")
    assert len(page.all("tbody tr")) == 3
    page = page.follow("All 9")
    page.fill("Search addresses", "ever@EXAM")
    page = page.press(page.field("Search addresses"))
    assert len(page.all("tbody tr")) == 1
    page = page.follow("Never@example.org")
    page.fill("Reason", " ")
    page = page.press("Remove from list")
    assert page.all("#f-reason-err")
    page.fill("Reason", "They wrote to us")
    page = page.press("Remove from list")
    assert page.path == "/contacts/suppressions"
    assert page.has(".toast", "Removed from the suppression list. Messages are sent to this address again.")
    [lifted, *_] = api.get(f"/contacts/{contact['id']}/consents").expect(200)
    assert (lifted["act"], lifted["source"]) == ("lifted", "ui")
    assert lifted["data"] == {"reason": "manual", "note": "They wrote to us"}


def test_temporary_and_erased_suppressions(user: ScriptlessBrowser, api: Client) -> None:
    """A manual suppression may expire; an erased address is not shown, but found by search."""
    page = HtmlPage(user, "/contacts/suppressions/new")
    page.fill("Email or phone", "holiday@example.org")
    page.fill("Expires", "2001-01-01")
    page = page.press("Suppress address")
    assert page.all("#f-until-err")
    page.fill("Expires", "2199-12-31")
    assert page.press("Suppress address").title == "holiday@example.org"
    [row] = api.get("/suppressions", address="holiday@example.org").expect(200)
    assert row["expires_at"].startswith("2199-12-31")

    erased = api.post("/contacts", {"email": "forget@example.org"}).expect(201)
    api.delete(f"/contacts/{erased['id']}", erase="true").expect(200)
    page = HtmlPage(user, "/contacts/suppressions?search=forget@example.org").follow("Deleted address")
    assert page.title == "Deleted address"
    assert "The contact stays unsubscribed until they subscribe again." in page.text
    page = HtmlPage(user, "/contacts/suppressions?search=nobody-at-all")
    assert page.has("h1, h2", "No results for “nobody-at-all”")


def test_a_viewer_cannot_lift_a_suppression(api: Client, server: Server) -> None:
    """A viewer sees the reason, has no form, and gets a 403."""
    suppression_id = api.post("/suppressions", {"address": "watched@example.org"}).expect(201)["id"]
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=f"{PASSWORD}\n")
    viewer = Visitor(server, "viewer@example.org")
    response = viewer.send("GET", f"/contacts/suppressions/{suppression_id}")
    assert response.status == 200 and "Remove from suppression list" not in response.text
    for path in ("/contacts/suppressions", f"/contacts/suppressions/{suppression_id}/lift"):
        assert viewer.send("POST", path, {"address": "a@example.org", "reason": "manual"}).status == 403
    assert api.get("/suppressions", address="watched@example.org").expect(200)[0]["id"] == suppression_id
